import { once } from 'node:events'
import type { AddressInfo, Server, Socket } from 'node:net'
import type { Test } from 'tap'

/** Opens a server on a free port until the test ends, which also ends its connections. Returns the port. */
export async function listening(t: Test, server: Server, host = '127.0.0.1'): Promise<number> {
  const sockets = new Set<Socket>()
  server.on('connection', (socket: Socket) => void sockets.add(socket.once('close', () => sockets.delete(socket))))
  await once(server.listen(0, host), 'listening')
  t.teardown(() => {
    for (const socket of sockets) socket.destroy()
    return new Promise((resolve) => server.close(resolve))
  })
  return (server.address() as AddressInfo).port
}
