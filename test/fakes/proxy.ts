/** A TCP proxy between a client and a server on loopback, with delays, silence and cut connections. */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'

export type Proxy = {
  port: number
  /** Sets the target of new connections. */
  leadsTo(port: number): void
  /** Delays the server's bytes from now on. */
  delay(ms: number): void
  /** Connections are accepted and stay open, and no bytes pass in either direction until `pass`. */
  blackHole(): void
  pass(): void
  /** Closes every connection. */
  cut(): void
  /** Number of open connections. */
  connections(): number
  close(): Promise<void>
}

export async function openProxy(): Promise<Proxy> {
  const sockets = new Set<Socket>()
  let target = 0
  let delayMs = 0
  let open = Promise.withResolvers<void>()
  open.resolve()

  /** In order, whatever the delays. */
  function carry(from: Socket, to: Socket, isLate: boolean): void {
    let last: Promise<unknown> = Promise.resolve()
    const inOrder = (step: () => void): void => {
      const arrives = Promise.all([open.promise, isLate && delayMs > 0 ? pause(delayMs) : null])
      last = last.then(() => arrives).then(() => open.promise).then(step)
    }
    from.on('data', (chunk: Buffer) => inOrder(() => void (to.writable && to.write(chunk))))
    from.on('end', () => inOrder(() => to.end()))
    from.on('close', () => {
      sockets.delete(from)
      to.destroy()
    })
    from.on('error', () => {})
  }

  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ port: target, host: '127.0.0.1', allowHalfOpen: true })
    for (const socket of [client, upstream]) sockets.add(socket)
    carry(client, upstream, false)
    carry(upstream, client, true)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const cut = (): void => {
    for (const socket of sockets) socket.destroy()
  }
  return {
    port: (server.address() as AddressInfo).port,
    leadsTo(port) {
      target = port
    },
    delay(ms) {
      delayMs = ms
    },
    blackHole() {
      open = Promise.withResolvers()
    },
    pass: () => open.resolve(),
    cut,
    connections: () => sockets.size / 2,
    async close() {
      cut()
      open.resolve()
      server.close()
      await once(server, 'close')
    },
  }
}
