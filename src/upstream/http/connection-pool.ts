/** The connections to one origin, by HTTP/1.1 with a client of our own (docs/decisions/0105-own-http-client.md). */
import { Connection, type ConnectionOptions, type ResponseHandler } from './connection.ts'

/** Where a request is sent: over a kept connection or a new one, or over one of its own. */
export type Connections = 'pool' | 'unpooled'

export type ConnectionPool = {
  /**
   * Sends a request with this body, which it takes over. `head`: the request line and the fields, each with its line end, without
   * `connection` and `content-length`. Returns the connection, which is the handler's until the response has ended or failed; null when it
   * has failed at once.
   */
  send(head: string, body: string | Buffer[], handler: ResponseHandler, connections: Connections): Connection | null
  /** Keeps no connection from now on; resolves when none is left. A call that has begun may still send its request, or send it again. */
  drain(): Promise<void>
  /** Ends the requests in flight. */
  destroy(): Promise<void>
}

/** Opens a pool that is empty. `connectMs`: for a connection and its TLS handshake. */
export function openConnectionPool({ protocol, hostname, port }: URL, connectMs: number): ConnectionPool {
  const isTls = protocol === 'https:'
  const all = new Set<Connection>()
  /** The connection that was used last is the last one. */
  const free: Connection[] = []
  /** Freed in this turn of the event loop, and in the one before. */
  let freed: Connection[] = []
  let settling: Connection[] = []
  /** With a request that is sent at the end of this turn. */
  let due: Connection[] = []
  let isScheduled = false
  let state: 'open' | 'draining' | 'destroyed' = 'open'
  const closed = Promise.withResolvers<void>()

  const options: ConnectionOptions = {
    host: hostname.replace(/^\[|\]$/g, ''),
    port: port === '' ? (isTls ? 443 : 80) : Number(port),
    isTls,
    connectMs,
    session: undefined,
    sessionMade: (session) => void (options.session = session),
    freed(connection) {
      if (state !== 'open') return connection.destroy(new Error('drained'))
      freed.push(connection)
      schedule()
    },
    closed(connection) {
      all.delete(connection)
      const at = free.indexOf(connection)
      if (at >= 0) free.splice(at, 1)
      if (state !== 'open' && all.size === 0) closed.resolve()
    },
  }

  function schedule(): void {
    if (!isScheduled) setImmediate(turn)
    isScheduled = true
  }

  /**
   * At the end of each turn with something to do. What a server sends though nobody asked for it, such as a second response, or the end of
   * the connection, must not meet the next request: what has arrived is read within a turn. And the requests of a turn are written one
   * after another, which wakes a server of the same machine once.
   */
  function turn(): void {
    const ready = settling.concat(due)
    settling = freed
    freed = []
    due = []
    isScheduled = false
    if (settling.length > 0) schedule()
    for (const connection of ready) {
      if (connection.isIdle()) free.push(connection)
      connection.settled()
    }
  }

  function idle(): Connection | undefined {
    for (let last = free.pop(); last; last = free.pop()) {
      if (!last.isIdle()) continue
      due.push(last)
      schedule()
      return last
    }
    return settling.find((one) => one.isIdle()) ?? freed.find((one) => one.isIdle())
  }

  function connect(isKept: boolean): Connection {
    const made = new Connection(options, isKept)
    all.add(made)
    return made
  }

  function close(next: 'draining' | 'destroyed'): Promise<void> {
    state = next
    for (const one of all) if (next === 'destroyed' || one.isIdle()) one.destroy(new Error('the upstream is not in use any more'))
    if (all.size === 0) closed.resolve()
    return closed.promise
  }

  return {
    send(head, body, handler, connections) {
      if (state === 'destroyed') {
        handler.responseFailed(new Error('the upstream is not in use any more'), false)
        return null
      }
      const isKept = connections === 'pool'
      const used = (isKept ? idle() : undefined) ?? connect(isKept)
      used.send(head, body, handler)
      return used
    },
    drain: () => close('draining'),
    destroy: () => close('destroyed'),
  }
}
