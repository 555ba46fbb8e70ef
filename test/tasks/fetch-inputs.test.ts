/** A run that reads its sources. */
import { Readable } from 'node:stream'
import t from 'tap'
import type { Files } from '../../src/backends/files/files.ts'
import { openInputs } from '../../src/tasks/fetch-inputs.ts'
import { T0, task } from '../contracts/store/acme.ts'
import { LIMITS } from '../fakes/engine.ts'

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
