/** One pass over a name of either queue, and whom else it concerns: a plan its keys, a key its plan, a key that went those that waited for its place. */
import type { KeyVersion } from '../../src/domain/api-keys.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { nextTime } from '../../src/domain/reconcile/status-conditions.ts'
import { admittedKeys, keyUnreachable } from '../../src/domain/reconcile/reconcile-api-key.ts'
import { expiryOf } from '../../src/domain/reconcile/api-key-rotation.ts'
import { planUnreachable } from '../../src/domain/reconcile/reconcile-plan.ts'
import type { ApiKeyResource, ApiKeyStatus, PlanResource, PlanStatus, Ref } from '../../src/backends/resources/resources.ts'
import { passGoneKey, passKey, type KeyWork } from './api-key-reconciler.ts'
import { openPlanKeyIndex } from './plan-key-index.ts'
import { passPlan, type PlanWork } from './plan-reconciler.ts'
import type { Priority, Queue } from './work-queue.ts'

export type Reconciler = {
  /** A resource changed or went. */
  changed(ref: Ref, priority: Priority): void
  /** One pass; resolves to when to look again though nothing changes, or null. */
  plan(name: string): Promise<number | null>
  key(name: string): Promise<number | null>
  /** A pass ended: plans whose keys changed are looked at once no key waits any more. */
  rested(): void
  /** Says in the status that the store is away. */
  unreachable(kind: Ref['kind'], name: string): Promise<void>
  /** Enqueues everything that is declared, and everything that the store believes alive, so that what went while nobody looked is found. Throws `Unavailable`. */
  all(): Promise<void>
}

const BATCH = 500
/** While many keys change, their plans count them that often: each time all keys of a plan are read and its status is written. */
const RECOUNT_MS = 2_000

export type ReconcilerOptions = {
  work: KeyWork & PlanWork
  plans: Queue
  keys: Queue
  /** Runs `run` after `ms`. */
  after: (ms: number, run: () => void) => void
  /** Is told how long a key took from its declaration to being usable. */
  keyReady: (seconds: number) => void
}

/** Names are `namespace/name`. */
export function openReconciler({ work, plans, keys, after, keyReady }: ReconcilerOptions): Reconciler {
  const { store, resources, clock } = work
  const known = openPlanKeyIndex()
  /** Plans whose keys must look again after the plan's next pass, whatever that does. */
  const edited = new Set<string>()
  /** When a key was declared or changed, until it was looked at. */
  const declaredAt = new Map<string, number>()
  /** The keys that a plan's maxKeys admits, by its last pass. */
  const admitted = new Map<string, Set<string>>()
  /** Plans whose keys changed since they were last counted. */
  const touched = new Set<string>()

  const planOf = (name: string) => resources.get(refOf('Plan', name)) as PlanResource | null
  const keyOf = (name: string) => resources.get(refOf('ApiKey', name)) as ApiKeyResource | null

  function* siblingsOf(plan: string): Generator<ApiKeyResource> {
    for (const name of known.keysOf(plan)) {
      const key = keyOf(name)
      if (key) yield key
    }
  }

  /** The keys among which one may be beyond the plan's maxKeys; none while it has places for all. */
  function rivalsOf(plan: string): Iterable<ApiKeyResource> {
    return known.keysOf(plan).size <= (planOf(plan)?.spec.keyPolicy.maxKeys ?? Infinity) ? [] : siblingsOf(plan)
  }

  function recount(plan: string): void {
    if (touched.size === 0) after(RECOUNT_MS, flush)
    touched.add(plan)
  }

  function flush(): void {
    for (const plan of touched) plans.add(plan, 'background')
    touched.clear()
  }

  function readmit(name: string, plan: PlanResource | null, siblings: ApiKeyResource[]): void {
    const now = admittedKeys(siblings, plan, clock())
    const before = admitted.get(name) ?? now
    if (plan) admitted.set(name, now)
    else admitted.delete(name)
    const namespace = name.slice(0, name.indexOf('/'))
    for (const key of new Set([...before, ...now])) if (before.has(key) !== now.has(key)) keys.add(`${namespace}/${key}`, 'urgent')
  }

  function forget(kind: Ref['kind'], name: string): void {
    if (kind === 'Plan') return plans.drop(name)
    keys.drop(name)
    known.forget(name)
  }

  /** Whoever begins to lead finds what changed while nobody did among all that is as it was: a change does not wait for that. */
  function priorityOf(kind: Ref['kind'], name: string): Priority {
    return resources.isObserved(refOf(kind, name)) ? 'background' : 'urgent'
  }

  /** The store may know of namespaces that are looked after by others, or not at the moment: there nobody can say what went. */
  function found({ tenant, name: of, keyId, tell }: KeyVersion): void {
    if (!resources.serves(tenant)) return
    const name = subscriptionId(tenant, of)
    known.noteUid(name, keyId)
    keys.add(name, tell.length > 0 ? 'urgent' : priorityOf('ApiKey', name))
  }

  return {
    changed(ref, priority) {
      const name = subscriptionId(ref.namespace, ref.name)
      // Who does not lead finds in the store, once it does, what went without having been looked at.
      if (priority === 'background' && !resources.get(ref) && !resources.going(ref)) return forget(ref.kind, name)
      if (ref.kind === 'Plan') {
        if (priority === 'urgent') edited.add(name)
        plans.add(name, priority)
        return
      }
      if (priority === 'urgent') declaredAt.set(name, performance.now())
      keys.add(name, priority)
      for (const plan of known.note(name, keyOf(name))) recount(plan)
    },
    async plan(name) {
      const plan = planOf(name)
      const isEdited = edited.delete(name)
      try {
        const { requeueAt, isChanged } = await passPlan(work, refOf('Plan', name), plan)
        if (isChanged || isEdited) for (const key of known.keysOf(name)) keys.add(key, 'urgent')
        const siblings = [...siblingsOf(name)]
        readmit(name, plan, siblings)
        // One that expires makes room for another.
        return nextTime([requeueAt, ...siblings.map(expiryOf)], clock())
      } catch (error) {
        // The record may be written although the pass failed, and the next one would find nothing changed.
        edited.add(name)
        throw error
      }
    },
    async key(name) {
      const key = keyOf(name)
      known.note(name, key)
      const going = resources.going(refOf('ApiKey', name))
      if (going) known.noteUid(name, going.uid)
      for (const uid of known.gone(name, key?.metadata.uid ?? null)) {
        for (const plan of await passGoneKey(work, refOf('ApiKey', name), uid)) recount(plan)
        known.forgetUid(name, uid)
      }
      const since = declaredAt.get(name)
      if (!key) {
        declaredAt.delete(name)
        return null
      }
      const pass = await passKey(work, key, rivalsOf(subscriptionId(key.metadata.namespace, key.spec.planRef.name)))
      const { requeueAt, ready } = pass
      for (const plan of pass.touched) recount(plan)
      if (ready === 'became' && since !== undefined) keyReady((performance.now() - since) / 1000)
      if (ready !== 'waits') declaredAt.delete(name)
      if (pass.refusal) throw pass.refusal
      return requeueAt
    },
    rested() {
      if (keys.isIdle()) flush()
    },
    async unreachable(kind, name) {
      const ref = refOf(kind, name)
      const resource = resources.get(ref)
      if (!resource) return
      const status = await resources.status(ref)
      const now = clock()
      const isPlan = resource.kind === 'Plan'
      const said = isPlan ? planUnreachable(resource, status as PlanStatus | null, now) : keyUnreachable(resource, status as ApiKeyStatus | null, now)
      work.assertLeading()
      await resources.setStatus(ref, said)
    },
    async all() {
      for (const { metadata } of resources.list('Plan')) {
        const name = subscriptionId(metadata.namespace, metadata.name)
        plans.add(name, priorityOf('Plan', name))
      }
      for (const key of resources.list('ApiKey')) {
        const name = subscriptionId(key.metadata.namespace, key.metadata.name)
        known.note(name, key)
        keys.add(name, priorityOf('ApiKey', name))
      }
      await pages(BATCH, (after) => store.subscriptionsWith('plan', after, BATCH), ({ id, tenant }) => resources.serves(tenant) && plans.add(id, priorityOf('Plan', id)))
      await pages(BATCH, (after) => store.keysAlive(after, BATCH), found)
      for (const version of await store.keysToTell(BATCH)) found(version)
    },
  }
}

function refOf(kind: Ref['kind'], name: string): Ref {
  const slash = name.indexOf('/')
  return { kind, namespace: name.slice(0, slash), name: name.slice(slash + 1) }
}

async function pages<T extends { id: string }>(size: number, page: (after: string) => Promise<T[]>, each: (item: T) => void): Promise<void> {
  for (let after = '', isLast = false; !isLast; ) {
    const batch = await page(after)
    for (const item of batch) each(item)
    after = batch.at(-1)?.id ?? ''
    isLast = batch.length < size
  }
}
