/** The engine of a provider: a run ends as soon as it is aborted, and `close` waits for the work that its runs have left. */
import { unlessAborted } from '../../../concurrency/unless-aborted.ts'
import { amountsAtMost } from '../../../domain/media-operations.ts'
import { notMade, type Made, type NotMade, type Engine, type EngineRequest, type Run } from '../engine.ts'
import type { Api } from './api-requests.ts'
import { faulty } from './failure.ts'
import { orderedRequest, type Order } from './ordered-request.ts'

/** Makes what was requested. `background` takes work that continues after the run and may fail. */
export type Make = (request: EngineRequest, run: Run, background: (work: Promise<unknown>) => void) => Promise<Made | NotMade>

/** What is offered of the entry's `offers`: without sharp, which converts masks, there is no inpainting. */
export function offersOf(
  given: Readonly<Record<string, { formats: string[] } | undefined>>,
  mayMask: boolean,
): Required<Pick<Engine, 'offers' | 'missing'>> {
  const missing = !mayMask && given['inpaint'] ? { inpaint: 'sharp, which converts masks, is not installed' } : {}
  const offered = Object.entries(given).flatMap(([kind, offer]) =>
    offer && !Object.hasOwn(missing, kind) ? [[kind, { formats: offer.formats as [string, ...string[]] }] as const] : [],
  )
  return { offers: Object.fromEntries(offered), missing }
}

/** How long the request that cancels a job may take, and a poll. */
export const CANCEL_MS = 10_000
export const POLL_MS = 30_000

/** The engine over `make`, which gets what `order` makes of the request; the same is quoted. `run` rejects as soon as its signal is aborted. */
export function providedEngine(
  api: Api,
  { offers, missing }: Required<Pick<Engine, 'offers' | 'missing'>>,
  order: Order,
  make: Make,
): Engine {
  const working = new Set<Promise<unknown>>()
  let closing: Promise<void> | null = null

  function track(work: Promise<unknown>): void {
    const held: Promise<unknown> = work.catch(() => {}).finally(() => working.delete(held))
    working.add(held)
  }

  async function close(): Promise<void> {
    while (working.size > 0) await Promise.all(working)
    await api.close()
  }

  return {
    offers,
    missing,
    quote: (request, limits, model = null) => amountsAtMost(orderedRequest(order, request, model, limits) ?? request, limits),
    async run(request, run) {
      run.signal.throwIfAborted()
      if (!Object.hasOwn(offers, request.kind)) return notMade('not_supported', false)
      const { model, limits, job } = run
      // A job that was ordered already is resumed whatever the limits are now.
      const ordered = orderedRequest(order, request, model, limits) ?? (job.id === null ? null : request)
      if (!ordered) return faulty(`${model} makes no ${request.kind} within the route's max`, false)
      const making = make(ordered, run, track)
      track(making)
      // A picture that is being converted does not listen to the signal.
      return unlessAborted(making, run.signal)
    },
    close: () => (closing ??= close()),
  }
}
