/** Index of ApiKeys by plan, and of the uids that each ApiKey name has had, so that a deleted key can be finalized without its resource. */
import { subscriptionId } from '../../src/domain/plans.ts'
import type { ApiKeyResource } from '../../src/backends/resources/resources.ts'

export type PlanKeyIndex = {
  /** Updates the key of that name; null when it was deleted. Returns its plans before and after. */
  update(name: string, key: ApiKeyResource | null): string[]
  /** Records that the store has versions of a key of that name and uid. */
  addUid(name: string, uid: string): void
  /** Uids of that name other than `present`. */
  deletedUids(name: string, present: string | null): string[]
  removeUid(name: string, uid: string): void
  /** Removes the key and all its uids. */
  remove(name: string): void
  /** Names of the keys of a plan, both as `namespace/name`. */
  keysOf(plan: string): ReadonlySet<string>
}

const NONE: ReadonlySet<string> = new Set()

export function openPlanKeyIndex(): PlanKeyIndex {
  const planOf = new Map<string, string>()
  const keys = new Map<string, Set<string>>()
  const uids = new Map<string, Set<string>>()

  function addUid(name: string, uid: string): void {
    const known = uids.get(name) ?? new Set()
    uids.set(name, known.add(uid))
  }

  function update(name: string, key: ApiKeyResource | null): string[] {
    const before = planOf.get(name)
    const now = key ? subscriptionId(key.metadata.namespace, key.spec.planRef.name) : undefined
    if (before !== undefined && before !== now) {
      keys.get(before)?.delete(name)
      if (keys.get(before)?.size === 0) keys.delete(before)
      planOf.delete(name)
    }
    if (now !== undefined) {
      planOf.set(name, now)
      keys.set(now, (keys.get(now) ?? new Set()).add(name))
    }
    if (key) addUid(name, key.metadata.uid)
    return [...new Set([before, now].filter((plan) => plan !== undefined))]
  }

  return {
    update,
    addUid,
    deletedUids: (name, present) => [...(uids.get(name) ?? [])].filter((uid) => uid !== present),
    removeUid(name, uid) {
      uids.get(name)?.delete(uid)
      if (uids.get(name)?.size === 0) uids.delete(name)
    },
    remove(name) {
      update(name, null)
      uids.delete(name)
    },
    keysOf: (plan) => keys.get(plan) ?? NONE,
  }
}
