/** Connections to upstreams: what a finished answer leaves behind, and resets of idle connections. */
import { mock } from 'node:test'
import t from 'tap'
import { streamReader } from '../../src/upstream/http/stream-reader.ts'
import { openChatStream } from '../../src/upstream/wires/chat-stream.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { chatStream } from '../fakes/upstream-wire.ts'

t.test('a stream whose body has ended leaves no timer behind', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const aborts: Error[] = []
  const control = { pause() {}, resume() {}, resolve() {}, reject: (error: Error) => t.fail(error.message), abort: (reason: Error) => aborts.push(reason) }
  const read = (end: boolean) => {
    const stream = openChatStream({ ids: openIds([Buffer.alloc(32, 1)])('acme/first'), includeUsage: false, now: 1 })
    const reader = streamReader(stream, control as unknown as Parameters<typeof streamReader>[1])
    reader.data(Buffer.from(chatStream('a').join('')))
    if (end) reader.ended(null)
    mock.timers.tick(60_000)
  }
  read(true)
  t.equal(aborts.length, 0, 'the body ended: nothing fires later')
  read(false)
  t.equal(aborts.length, 1, 'the body did not end: its connection is closed')
})
