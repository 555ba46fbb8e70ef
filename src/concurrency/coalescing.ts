/** Coalescing: callers during a pass share the next one, so that the pass of each caller began after its call. */

/** Wraps `pass`. An error of a pass goes to all its callers. */
export function coalescing(pass: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | null = null
  let next: Promise<void> | null = null

  function begin(): Promise<void> {
    next = null
    return (running = pass().finally(() => (running = null)))
  }

  return () => (running === null ? begin() : (next ??= running.then(begin, begin)))
}
