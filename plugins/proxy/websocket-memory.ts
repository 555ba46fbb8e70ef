/** What a pass-through WebSocket holds, counted in the memory of bodies: a message while it arrives, and until the other side has taken it. */
import type { Duplex } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import type { WebSocket } from 'ws'

type Share = ReturnType<FastifyInstance['openBodyShare']>

/** RFC 6455, section 7.4.1, and the registry of close codes: try again later. */
const BUSY = 1013

export type MessageMemory = {
  /** The service is connected by this socket. */
  connected(socket: Duplex): void
  /** Both sides of the connection, known with its first message. */
  joined(client: WebSocket): void
  /** A message has arrived whole from this side. */
  whole(side: 'client' | 'service'): void
}

/** Counts from now on, until both sockets are closed. A connection beyond the budget, or the share of its tenant, is closed with the code 1013. */
export function countMessages(share: Share, socket: Duplex, service: WebSocket): MessageMemory {
  const arrived = { client: 0, service: 0 }
  let client: WebSocket | null = null

  function take(bytes: number): boolean {
    try {
      share.take(bytes)
      return true
    } catch {
      client?.close(BUSY, 'no memory is free')
      socket.end()
      // What still arrives would be held.
      socket.resume().removeAllListeners('data')
      service.terminate()
      return false
    }
  }

  function countArrivals(from: Duplex, side: keyof typeof arrived): void {
    // Before `ws`, which says with the last bytes that the message is whole.
    from.prependListener('data', ({ length }: Buffer) => {
      if (take(length)) arrived[side] += length
    })
  }

  function countSent(to: WebSocket): void {
    const send = to.send.bind(to) as (data: Buffer, options: object, done: () => void) => void
    to.send = ((data: Buffer, options: object) => {
      if (take(data.length)) send(data, options, () => share.take(-data.length))
    }) as WebSocket['send']
  }

  function whole(side: keyof typeof arrived): void {
    share.take(-arrived[side])
    arrived[side] = 0
  }

  let open = 2
  const closed = () => {
    if (--open === 0) share.free()
  }
  socket.once('close', closed)
  service.once('close', closed)
  countArrivals(socket, 'client')
  countSent(service)

  return {
    connected: (serviceSocket) => countArrivals(serviceSocket, 'service'),
    joined(source) {
      if (client) return
      client = source
      countSent(source)
      for (const event of ['ping', 'pong'] as const) source.on(event, () => whole('client'))
    },
    whole,
  }
}
