/** What adapters share about API keys. Which versions of one are read: whoever may edit it can rotate it without end, and ended versions stay. */
import type { KeyVersion } from '../../domain/api-keys.ts'
import type { Store } from './store.ts'

/** What a store does with keys. */
export type KeyVerbs = Pick<
  Store,
  | 'mintKey'
  | 'setKey'
  | 'told'
  | 'keysUsed'
  | 'keysToTell'
  | 'findKey'
  | 'keyVersion'
  | 'keyVersions'
  | 'keysAlive'
  | 'keysOf'
  | 'forgetSealed'
>

/** Decisions need the newest version, and those that are not deleted, which are few. */
export const NEWEST = 16

/** The ids of the versions of a key lie between these; those of a key whose uid goes on with `-` do too. */
export function idRange(keyId: string): [after: string, before: string] {
  return [`${keyId}-`, `${keyId}.`]
}

/** The newest versions, ordered, with the older ones among those that are not deleted. */
export function withOlder(newest: KeyVersion[], alive: KeyVersion[]): KeyVersion[] {
  const oldest = newest.at(-1)?.revision ?? 0
  return [...newest, ...alive.filter(({ revision }) => revision < oldest).sort((a, b) => b.revision - a.revision)]
}
