/** Wraps a backend that can be switched off: every call then fails as with an unreachable server. */
import { Unavailable } from '../../src/domain/errors.ts'

export type Away<D> = { backend: D; isAway: boolean }

export function openAway<D extends object>(backend: D, name: string): Away<D> {
  const away: Away<D> = {
    isAway: false,
    backend: new Proxy(backend, {
      get(target, verb) {
        const original: unknown = Reflect.get(target, verb)
        if (typeof original !== 'function') return original
        return (...given: unknown[]) => (away.isAway ? Promise.reject(new Unavailable(name, new Error('it is away'))) : Reflect.apply(original, target, given))
      },
    }),
  }
  return away
}
