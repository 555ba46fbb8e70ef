/** What every engine promises. A place is an opened engine and one small request for each kind and operation that it makes, with the inputs that it needs. */
import type { Engine, EngineRequest, Input, Made, NotMade } from '../../src/backends/engines/engine.ts'
import { mediaInfo } from '../../src/domain/media-info.ts'
import { LIMITS, runControl } from '../fakes/engine.ts'
import type { Promises } from './run-contract.ts'

export type EnginePlace = { engine: Engine; requests: EngineRequest[]; inputsOf?: (request: EngineRequest) => Input[] }

async function bytesOf(made: Made | NotMade): Promise<Buffer> {
  if (made.outcome === 'failed') throw new Error(`not made: ${made.code}`, { cause: made.cause })
  if (made.body instanceof Uint8Array) return Buffer.from(made.body)
  return Buffer.concat(await Array.fromAsync(made.body))
}

const controlFor = ({ inputsOf = () => [] }: EnginePlace, request: EngineRequest, more: Parameters<typeof runControl>[0] = {}) => runControl({ inputs: inputsOf(request), ...more })

export const enginePromises: Promises<EnginePlace> = {
  'it says what it makes, and in which formats': async (t, { engine, requests }) => {
    t.ok(requests.length > 0)
    for (const { kind, format } of requests) t.ok(engine.offers[kind]?.formats.includes(format), kind)
  },
  'a quote is whole thousandths, none below zero, and the same each time': async (t, { engine, requests }) => {
    for (const request of requests) {
      const quote = engine.quote(request, LIMITS)
      t.ok(Object.values(quote).every((amount) => Number.isSafeInteger(amount) && amount >= 0))
      t.same(engine.quote(request, LIMITS), quote)
    }
  },
  'it makes what was asked for, of the size and length that was asked for, takes no more than it quoted, and its progress rises from 0 to 99 percent': async (t, place) => {
    const { engine, requests } = place
    for (const request of requests) {
      const heard: number[] = []
      const made = await engine.run(request, controlFor(place, request, { progress: (percent) => heard.push(percent) }))
      t.same(heard, heard.toSorted((a, b) => a - b))
      t.ok(heard.every((percent) => percent >= 0 && percent <= 99))
      const bytes = await bytesOf(made)
      if (made.outcome !== 'made') continue
      if (made.release) t.ok(bytes.equals(await bytesOf(made)), 'it may be read again until it is released')
      await made.release?.()
      const { contentType, width, height } = mediaInfo(bytes, bytes.length) ?? {}
      t.same([contentType, width ?? null, height ?? null], [made.contentType, made.facts.width, made.facts.height], request.kind)
      if ('width' in request) {
        t.match(made.contentType, { image: /^image\//, video: /^video\//, music: /^audio\// }[request.kind])
        t.same(made.facts, { width: request.width, height: request.height, durationMs: request.durationMs })
      }
      const quote = engine.quote(request, LIMITS)
      t.ok(made.used.Job <= quote.Job && made.used.Second <= quote.Second && made.used.Megapixel <= quote.Megapixel)
    }
  },
  'a run whose signal is aborted already is not begun': async (t, place) => {
    const reason = new Error('canceled')
    for (const request of place.requests) await t.rejects(place.engine.run(request, controlFor(place, request, { signal: AbortSignal.abort(reason) })), reason)
  },
  'a run that is aborted ends with the reason': async (t, place) => {
    const reason = new Error('canceled')
    for (const request of place.requests) {
      const controller = new AbortController()
      const run = place.engine.run(request, controlFor(place, request, { signal: controller.signal }))
      controller.abort(reason)
      await t.rejects(run, reason)
    }
  },
  'the same prompt and seed give the same bytes, another seed gives others': async (t, place) => {
    for (const request of place.requests) {
      if (!('seed' in request)) continue
      const make = async (seed: number) => bytesOf(await place.engine.run({ ...request, seed }, controlFor(place, request)))
      const [first, again, other] = [await make(7), await make(7), await make(8)]
      t.ok(first.equals(again))
      t.notOk(first.equals(other))
    }
  },
  'closing twice is harmless': async (t, { engine }) => {
    await engine.close()
    await t.resolves(engine.close())
  },
}
