/**
 * Resolves like `work`, or rejects with the signal's reason once that aborts: for work that does not stop by itself. Nothing listens
 * afterwards, because Node keeps a composite signal that has listeners.
 */
export async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const { promise, reject } = Promise.withResolvers<never>()
  const stop = (): void => reject(signal.reason)
  signal.addEventListener('abort', stop, { once: true })
  if (signal.aborted) stop()
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
