/** What is told of a client that leaves. */
import { once } from 'node:events'
import { createServer, request, type ServerResponse } from 'node:http'
import t from 'tap'
import { disconnectSignal, hasClosed, onceClosed } from '../../src/http/disconnect.ts'
import { listening } from '../fakes/listening.ts'

t.test('work for a client that leaves is cancelled, also work that begins after the client has left', async (t) => {
  const server = createServer()
  const client = request({ port: await listening(t, server), host: '127.0.0.1', agent: false })
  client.on('error', () => {})
  client.end()
  const [, response] = (await once(server, 'request')) as [unknown, ServerResponse]
  const early = disconnectSignal(response)
  const left = new Promise<void>((resolve) => onceClosed(response, resolve))
  t.notOk(early.aborted || hasClosed(response))
  client.destroy()
  await once(response, 'close')
  t.ok(early.aborted)
  t.ok(disconnectSignal(response).aborted && hasClosed(response))
  await left
  await new Promise<void>((resolve) => onceClosed(response, resolve))
})
