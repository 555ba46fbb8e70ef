/** The body that an upstream is sent: the client's, with the upstream's model name, a limit of output tokens, and the upstream's own ids. */
import { sentMembers } from '../policy/request-policy.ts'
import type { Ids } from './encrypted-ids.ts'
import { isMembers, own, type Members } from './allowlist.ts'
import { openCallId } from './sealed-members.ts'
import type { Target } from './wire.ts'

/** Decrypts the ids in these members of an object, in place. Members that were sealed into an id are left out. */
export function restoreIds(holder: Members, names: readonly string[], ids: Ids): void {
  for (const name of names) {
    const value = own(holder, name)
    if (typeof value === 'string') holder[name] = openCallId(value, ids).id
  }
}

/** Replaces what names an end user or a cache, in place, so that tenants share neither at an upstream. */
export function replaceIdentities(body: Members, ids: Ids): void {
  for (const name of ['user', 'safety_identifier', 'prompt_cache_key']) {
    const value = own(body, name)
    if (typeof value === 'string') body[name] = ids.pseudonym(value)
  }
}

/** The documented member of `stream_options` that clients decide. */
export function obfuscationOf(options: unknown): Members {
  const chosen = isMembers(options) ? own(options, 'include_obfuscation') : undefined
  return chosen === undefined ? {} : { include_obfuscation: chosen }
}

/**
 * Returns a writer of the body per upstream: its model, the limit, and the members that its policy lets pass. The conversation, which is equal
 * for all upstreams, is stringified once. The limit goes under `limitField`, or unless `fixedField` under the upstream's `maxTokensField`.
 */
export function bodyWriter(members: Members, limitField: string, limit: number, fixedField: boolean): (target: Target) => string {
  const [wire, name] = Object.hasOwn(members, 'messages') ? (['chat', 'messages'] as const) : (['responses', 'input'] as const)
  const { [name]: conversation, ...others } = members
  const written = conversation === undefined ? '' : `,"${name}":${JSON.stringify(conversation)}`
  return ({ model, maxTokensField, policy }) => {
    const field = fixedField ? limitField : (maxTokensField ?? limitField)
    return `${JSON.stringify({ model, [field]: limit, ...sentMembers(wire, others, policy) }).slice(0, -1)}${written}}`
  }
}
