/** Which keys of a plan work when it allows fewer (`keyPolicy.maxKeys`). Pure. */
import type { ApiKeyResource, PlanResource } from '../../backends/resources/resources.ts'
import { isExpired } from './not-ready-reasons.ts'

/** Whether a plan's maxKeys has room for the key: the keys created first are admitted. Revoked and expired keys do not count. */
export function isAdmitted(key: ApiKeyResource, siblings: Iterable<ApiKeyResource>, plan: PlanResource | null, now: number): boolean {
  let left = plan?.spec.keyPolicy.maxKeys ?? Infinity
  for (const sibling of siblings) if (countsAgainstLimit(sibling, now) && compare(sibling, key) < 0 && --left === 0) return false
  return true
}

/** Names of all keys that a plan admits. */
export function admittedKeys(siblings: Iterable<ApiKeyResource>, plan: PlanResource | null, now: number): Set<string> {
  const counted = [...siblings].filter((sibling) => countsAgainstLimit(sibling, now)).sort(compare)
  return new Set(counted.slice(0, plan?.spec.keyPolicy.maxKeys).map(({ metadata }) => metadata.name))
}

function countsAgainstLimit(key: ApiKeyResource, now: number): boolean {
  return key.spec.state !== 'Revoked' && !isExpired(key, now)
}

function compare(a: ApiKeyResource, b: ApiKeyResource): number {
  // All times of a source have one form of RFC 3339, in UTC, and compare as strings. Keys of a plan are compared often, so they are not parsed.
  const [one, other] = [a.metadata, b.metadata]
  if (one.creationTimestamp !== other.creationTimestamp) return one.creationTimestamp < other.creationTimestamp ? -1 : 1
  return one.name < other.name ? -1 : Number(one.name > other.name)
}
