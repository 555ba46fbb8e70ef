/** Cancels the work for a client that has left. */

/** A signal that is aborted when the response closes, sent whole or not. */
export function disconnectSignal(response: Pick<NodeJS.EventEmitter, 'once'>): AbortSignal {
  const controller = new AbortController()
  response.once('close', () => controller.abort())
  return controller.signal
}
