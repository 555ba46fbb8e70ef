/** What a pass-through WebSocket holds, counted in the memory of bodies: a message while it arrives, and until the other side has taken it. */
import type { Duplex } from 'node:stream'
import type { FastifyInstance } from 'fastify'
import { WebSocket } from 'ws'

/** RFC 6455, section 7.4.1, and the registry of close codes: try again later. */
const BUSY = 1013
/** What a frame counts beside its payload while it waits to be sent: its header, and the objects of a write. */
const FRAME_BYTES = 256

export type MessageMemory = {
  /** The service is connected by this socket. */
  connected(socket: Duplex): void
  /** Both sides of the connection, known with its first message. */
  joined(client: WebSocket): void
  /** A message has arrived whole from this side. */
  whole(side: 'client' | 'service'): void
}

/** Counts from now on, until both sockets are closed. A connection beyond the budget, or the share of its tenant, is closed with the code 1013. */
export function countMessages(share: ReturnType<FastifyInstance['openBodyShare']>, socket: Duplex, service: WebSocket): MessageMemory {
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

  function giveBack(bytes: number): void {
    // After `free`, a share refuses to take nothing too.
    if (bytes > 0) share.take(-bytes)
  }

  function countSent(to: WebSocket): void {
    for (const name of ['send', 'ping', 'pong'] as const) {
      const send = to[name].bind(to) as (data: Buffer, options: unknown, done: () => void) => void
      to[name] = ((data: Buffer, options: unknown) => {
        const bytes = data.length + FRAME_BYTES
        if (take(bytes)) send(data, options, () => giveBack(bytes))
      }) as WebSocket['send'] & WebSocket['ping']
    }
  }

  /** A ping or pong may come between the fragments of a message, of which it frees nothing. */
  function freeControlFrames(from: WebSocket, side: keyof typeof arrived, header: number): void {
    for (const event of ['ping', 'pong'] as const)
      from.on(event, ({ length }: Buffer) => {
        const bytes = Math.min(arrived[side], length + header)
        arrived[side] -= bytes
        giveBack(bytes)
      })
  }

  function whole(side: keyof typeof arrived): void {
    const bytes = arrived[side]
    arrived[side] = 0
    // Until the service is connected, the message waits for it.
    if (service.readyState === WebSocket.CONNECTING) service.once('open', () => giveBack(bytes))
    else giveBack(bytes)
  }

  let open = 2
  const closed = () => {
    if (--open === 0) share.free()
  }
  socket.once('close', closed)
  service.once('close', closed)
  countArrivals(socket, 'client')
  countSent(service)
  freeControlFrames(service, 'service', 2)

  return {
    connected: (serviceSocket) => countArrivals(serviceSocket, 'service'),
    joined(source) {
      if (client) return
      client = source
      countSent(source)
      // A client masks its frames with four bytes.
      freeControlFrames(source, 'client', 6)
    },
    whole,
  }
}
