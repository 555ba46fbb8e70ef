/** What belongs to what: which keys name a plan, and which uids a name has had, so that one that went is found although its resource is gone. */
import { subscriptionId } from '../../src/domain/plans.ts'
import type { ApiKeyResource } from '../../src/backends/resources/resources.ts'

export type PlanKeyIndex = {
  /** Takes over the key of that name as it is now, null when it is gone. Returns the plans that it named before and names now. */
  note(name: string, key: ApiKeyResource | null): string[]
  /** The store has versions of a key of that name and uid. */
  noteUid(name: string, uid: string): void
  /** Uids of that name other than `present`. */
  gone(name: string, present: string | null): string[]
  forgetUid(name: string, uid: string): void
  /** All of that name. */
  forget(name: string): void
  /** Names of the keys of a plan, both as `namespace/name`. */
  keysOf(plan: string): ReadonlySet<string>
}

const NONE: ReadonlySet<string> = new Set()

export function openPlanKeyIndex(): PlanKeyIndex {
  const planOf = new Map<string, string>()
  const keys = new Map<string, Set<string>>()
  const uids = new Map<string, Set<string>>()

  function noteUid(name: string, uid: string): void {
    const known = uids.get(name) ?? new Set()
    uids.set(name, known.add(uid))
  }

  function note(name: string, key: ApiKeyResource | null): string[] {
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
    if (key) noteUid(name, key.metadata.uid)
    return [...new Set([before, now].filter((plan) => plan !== undefined))]
  }

  return {
    note,
    noteUid,
    gone: (name, present) => [...(uids.get(name) ?? [])].filter((uid) => uid !== present),
    forgetUid(name, uid) {
      uids.get(name)?.delete(uid)
      if (uids.get(name)?.size === 0) uids.delete(name)
    },
    forget(name) {
      note(name, null)
      uids.delete(name)
    },
    keysOf: (plan) => keys.get(plan) ?? NONE,
  }
}
