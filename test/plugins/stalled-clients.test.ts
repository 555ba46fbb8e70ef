import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import fastify from 'fastify'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors/errors.ts'
import type { Config } from '../../src/config/config.ts'
import { disconnectStalled } from '../../src/http/stalled-clients.ts'

const STALLED_MS = 3_600_000

/** The timeout of the connection after an answer of so many bytes to a client that reads nothing yet, and the client. */
async function timeoutAfter(t: Test, bytes: number) {
  const answered = Promise.withResolvers<ServerResponse>()
  const server = createServer((_request, response) => {
    response.end(Buffer.alloc(bytes))
    disconnectStalled(response, STALLED_MS)
    answered.resolve(response)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const client = connect((server.address() as AddressInfo).port, '127.0.0.1').pause()
  t.teardown(() => {
    client.destroy()
    server.closeAllConnections()
    server.close()
  })
  client.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
  const response = await answered.promise
  return { timeoutMs: response.socket?.timeout ?? 0, response, client }
}

t.test('an answer that the operating system took at once needs no timer for a stalled client', async (t) => {
  const { timeoutMs, response, client } = await timeoutAfter(t, 100)
  t.not(timeoutMs, STALLED_MS)
  t.equal(response.writableLength, 0)
  client.resume()
})

t.test('every answer has one, of five minutes', async (t) => {
  const app = fastify()
  app.decorate('config', {} as Config)
  await app.register(errors)
  const ended = Promise.withResolvers<ServerResponse>()
  app.get('/', (_request, reply) => {
    reply.raw.once('prefinish', () => ended.resolve(reply.raw))
    reply.send('x'.repeat(64 * 1024 * 1024))
  })
  await app.listen({ host: '127.0.0.1', port: 0 })
  const client = connect((app.server.address() as AddressInfo).port, '127.0.0.1').pause()
  t.teardown(async () => {
    client.destroy()
    await app.close()
  })
  client.write('GET / HTTP/1.1\r\nhost: here\r\n\r\n')
  const response = await ended.promise
  t.equal(response.socket?.timeout, 300_000)
})

t.test('an answer that the client leaves unread has one, and ends once it is read', async (t) => {
  const { timeoutMs, response, client } = await timeoutAfter(t, 64 * 1024 * 1024)
  t.equal(timeoutMs, STALLED_MS)
  client.resume()
  await once(response, 'finish')
})
