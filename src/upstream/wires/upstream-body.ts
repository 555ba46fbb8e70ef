/** The body that an upstream is sent: the client's, with the upstream's model name, a limit of output tokens, and the upstream's own ids. */
import type { Ids } from './encrypted-ids.ts'
import { own, type Members } from './allowlist.ts'
import type { Target } from './wire.ts'

/** Decrypts the ids in these members of an object, in place. */
export function restoreIds(holder: Members, names: readonly string[], ids: Ids): void {
  for (const name of names) {
    const value = own(holder, name)
    if (typeof value === 'string') holder[name] = ids.decrypt(value)
  }
}

/**
 * Returns a writer of the body per upstream: its model and the limit, then `rest`, which is stringified once. The limit goes under
 * `limitField`, or unless `fixedField` under the upstream's `maxTokensField`.
 */
export function bodyWriter(rest: Members, limitField: string, limit: number, fixedField: boolean): (target: Target) => string {
  const tail = JSON.stringify(rest).slice(1)
  return ({ model, maxTokensField }) => {
    const field = fixedField ? limitField : (maxTokensField ?? limitField)
    const front = JSON.stringify({ model, [field]: limit }).slice(0, -1)
    return tail === '}' ? `${front}}` : `${front},${tail}`
  }
}
