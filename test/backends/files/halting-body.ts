/** A body that pauses in the middle, for what happens to a file while it is being written. */
import { setImmediate } from 'node:timers/promises'

/** A body that pauses after `size` bytes until `goOn`. `reached` resolves when all of them were read. */
export function haltingBody(size: number): { body: AsyncIterable<Uint8Array>; reached: Promise<void>; goOn: () => void } {
  const { promise: reached, resolve } = Promise.withResolvers<void>()
  const { promise: resumed, resolve: goOn } = Promise.withResolvers<void>()
  const body = (async function* () {
    yield Buffer.alloc(size, 1)
    resolve()
    await resumed
    yield Buffer.alloc(size, 2)
  })()
  return { body, reached, goOn }
}

/** Resolves once `holds` returns true. */
export async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await setImmediate()
}
