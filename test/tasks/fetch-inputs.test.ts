/** A run that reads its sources. */
import { Readable } from 'node:stream'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { openFiles, type Files } from '../../src/backends/files/files.ts'
import type { Ask, Egress } from '../../src/egress/egress.ts'
import { openInputs } from '../../src/tasks/fetch-inputs.ts'
import { wav } from '../backends/engines/media-samples.ts'
import { T0, task } from '../contracts/store/acme.ts'
import { LIMITS } from '../fakes/engine.ts'
import { folderFor } from '../temporary-folder.ts'

t.test('a source that never ends is left when its run is aborted, or once its time is over', async (t) => {
  const facts = { id: 'result-1', size: 1000, contentType: 'image/png', expiresAt: T0 + 1e6 }
  const aborted = new AbortController()
  // A deadline alone keeps no process up.
  const up = setInterval(() => {}, 1000)
  t.teardown(() => clearInterval(up))
  const files = { stat: async () => facts, get: async () => ({ ...facts, stream: new Readable({ read: () => aborted.abort(new Error('canceled')) }) }) } as unknown as Files
  const open = (inputTimeoutMs: number, signal: AbortSignal) => openInputs({ files, inputTimeoutMs, clock: () => T0, linkedFile: () => facts.id, log: { info() {}, warn() {}, error() {} }, egress: null as never },
    task(1, { object: 'operation', kind: 'upscale', input: { media_url: 'https://gateway.test/files/result-1' } }), { max: LIMITS, timeoutMs: 1e6 }, signal)
  await t.rejects(open(1e6, aborted.signal), { message: 'canceled' })
  t.match(await open(1, new AbortController().signal), { outcome: 'failed', code: 'input_unreachable', retryable: true })
})

t.test('all sources of a run have the time of one together', async (t) => {
  // What is still being fetched and stored when the time is over writes to the folder, which tap would have removed by then.
  const disk = await openFiles(`disk:${await folderFor(t)}`)
  const requests: Promise<unknown>[] = []
  const puts: Promise<unknown>[] = []
  const files: Files = {
    ...disk,
    put(...file) {
      const put = disk.put(...file)
      puts.push(put)
      return put
    },
  }
  t.teardown(async () => {
    await Promise.allSettled(requests)
    await Promise.allSettled(puts)
    await disk.close()
  })
  let asked = 0
  const egress = {
    async request({ sink }: Ask) {
      asked++
      const waited = pause(20)
      requests.push(waited)
      await waited
      sink!({} as never)?.end(wav(100))
      return { outcome: 'answered', status: 200, headers: {}, body: new Uint8Array(), durationMs: 20 }
    },
  } as unknown as Egress
  const context = { files, egress, inputTimeoutMs: 100, clock: () => T0, linkedFile: () => null, log: { info() {}, warn() {}, error() {} } }
  const media_urls = Array.from({ length: 20 }, (_, n) => `https://slow.test/${n}`)
  const merge = task(1, { object: 'operation', kind: 'merge', input: { media_urls } })
  const opened = await openInputs(context, merge, { max: LIMITS, timeoutMs: 1e6 }, new AbortController().signal)
  t.match(opened, { outcome: 'failed', code: 'input_unreachable', retryable: true, details: { source: `/media_urls/${asked - 1}` } })
  t.ok(asked < 20, `${asked} of 20 were asked`)
})
