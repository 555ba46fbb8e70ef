import { once } from 'node:events'
import { createServer, type ServerResponse } from 'node:http'
import { connect, type AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
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

t.test('an answer that the client leaves unread has one, and ends once it is read', async (t) => {
  const { timeoutMs, response, client } = await timeoutAfter(t, 64 * 1024 * 1024)
  t.equal(timeoutMs, STALLED_MS)
  client.resume()
  await once(response, 'finish')
})
