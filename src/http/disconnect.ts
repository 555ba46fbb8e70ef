/**
 * What happens when a client leaves. Of Fastify's hooks none fires in the middle of a streamed POST (fastify#6208), and a response that has
 * closed already, such as during the lookup of a key, emits no further event.
 */
import type { Writable } from 'node:stream'

type Response = Pick<Writable, 'closed' | 'destroyed' | 'once'>

/** Whether the response has closed, sent whole or not. */
export function hasClosed({ closed, destroyed }: Pick<Response, 'closed' | 'destroyed'>): boolean {
  return closed || destroyed
}

/** Calls `then` once the response closes, sent whole or not; soon where it has closed already. */
export function onceClosed(response: Response, then: () => void): void {
  if (hasClosed(response)) setImmediate(then)
  else response.once('close', then)
}

/** One for all: making it takes longer than all else here, and nothing of it differs. */
const CLOSED = new DOMException('the response has closed', 'AbortError')

/** A signal that is aborted when the response closes, and from the beginning when it has closed already. */
export function disconnectSignal(response: Response): AbortSignal {
  const controller = new AbortController()
  if (hasClosed(response)) controller.abort(CLOSED)
  else response.once('close', () => controller.abort(CLOSED))
  return controller.signal
}
