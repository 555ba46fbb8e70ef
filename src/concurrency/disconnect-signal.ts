/** Cancels the work for a client that has left. */
import type { Writable } from 'node:stream'

/** A signal that is aborted when the response closes, sent whole or not, and from the beginning when it has closed already. */
export function disconnectSignal(response: Pick<Writable, 'closed' | 'destroyed' | 'once'>): AbortSignal {
  const controller = new AbortController()
  if (response.closed || response.destroyed) controller.abort()
  else response.once('close', () => controller.abort())
  return controller.signal
}
