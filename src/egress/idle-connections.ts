/** Idle connections of the egress guard, for the next request to the same origin. */
import { closeConnection, type Connection, isReusable } from './pinned-request.ts'

export type IdleConnections = {
  /** The one that was used last and is connected to one of the addresses, or null. The caller owns it from now on. */
  take(origin: string, addresses: readonly string[]): Connection | null
  /** Keeps a connection until it is taken or closes. */
  keep(origin: string, connection: Connection): void
  close(): void
}

/** File descriptors that idle connections may hold. Another one is closed instead of kept. */
const MAX_IDLE = 256

type Idle = { connection: Connection; closed: () => void }

export function openIdleConnections(): IdleConnections {
  const byOrigin = new Map<string, Idle[]>()
  let count = 0

  function remove(origin: string, idle: Idle): void {
    const rest = (byOrigin.get(origin) ?? []).filter((other) => other !== idle)
    if (rest.length > 0) byOrigin.set(origin, rest)
    else byOrigin.delete(origin)
    count--
  }

  return {
    take(origin, addresses) {
      const idle = byOrigin.get(origin)?.findLast(({ connection }) => addresses.includes(connection.address) && isReusable(connection))
      if (idle === undefined) return null
      idle.connection.socket.off('close', idle.closed)
      remove(origin, idle)
      return idle.connection
    },

    keep(origin, connection) {
      if (count === MAX_IDLE) return closeConnection(connection)
      const idle = { connection, closed: () => remove(origin, idle) }
      connection.socket.once('close', idle.closed)
      byOrigin.set(origin, [...(byOrigin.get(origin) ?? []), idle])
      count++
    },

    close() {
      for (const { connection } of [...byOrigin.values()].flat()) closeConnection(connection)
    },
  }
}
