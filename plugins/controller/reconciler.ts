/** Runs the reconcile passes of both queues and enqueues what depends on a change: the keys of a plan, the plan of a key, keys waiting for room in maxKeys. */
import type { KeyVersion } from '../../src/domain/api-keys.ts'
import { inTurn } from '../../src/concurrency/serial-by-name.ts'
import { limitsTogether } from '../../src/domain/plan-limits-by-namespace.ts'
import { subscriptionId } from '../../src/domain/plans.ts'
import { expiryOf } from '../../src/domain/reconcile/not-ready-reasons.ts'
import { nextTime } from '../../src/domain/reconcile/status-conditions.ts'
import { admittedKeys } from '../../src/domain/reconcile/max-keys.ts'
import { keyStoreUnavailable } from '../../src/domain/reconcile/reconcile-api-key.ts'
import { planStoreUnavailable } from '../../src/domain/reconcile/reconcile-plan.ts'
import type { ApiKeyResource, ApiKeyStatus, PlanResource, PlanStatus, Ref } from '../../src/backends/resources/resources.ts'
import { readPages } from '../../src/tasks/paged-reads.ts'
import { runDeletedKeyPass, runKeyPass, type KeyContext } from './api-key-reconciler.ts'
import { openPlanKeyIndex } from './api-key-index.ts'
import { runPlanPass, type PlanContext } from './plan-reconciler.ts'
import type { Priority, Queue } from './work-queue.ts'

export type Reconciler = {
  /** Enqueues a resource that was created, changed or deleted. */
  changed(ref: Ref, priority: Priority): void
  /**
   * One pass; resolves to the time (epoch milliseconds) to requeue the name at, or null. Nothing is done until the source has listed all
   * of the namespace: before that, a Plan that was not listed would count as deleted.
   */
  plan(name: string): Promise<number | null>
  key(name: string): Promise<number | null>
  /** Called after each pass: enqueues the plans whose keys changed once the key queue is idle. */
  passEnded(): void
  /** Writes to the status of a resource that the store is unavailable. */
  reportStoreUnavailable(kind: Ref['kind'], name: string): Promise<void>
  /**
   * Enqueues every resource of the source and every plan and key that is alive in the store, so that deletions missed by the watch are
   * found. Throws `Unavailable`.
   */
  enqueueAll(): Promise<void>
}

const BATCH = 500
/** Interval of status updates of a plan while many of its keys change: each update reads all its keys. */
const RECOUNT_MS = 2_000
/** Interval at which a pass asks whether its namespace is listed. */
const UNLISTED_RETRY_MS = 1_000

export type ReconcilerOptions = {
  context: KeyContext & PlanContext
  plans: Queue
  keys: Queue
  /** Runs `run` after `ms`. */
  after: (ms: number, run: () => void) => void
  /** Receives the time from the creation or change of a key until it is ready. */
  keyReady: (seconds: number) => void
}

/** Names are `namespace/name`. */
export function openReconciler({ context, plans, keys, after, keyReady }: ReconcilerOptions): Reconciler {
  const { store, resources, clock } = context
  const index = openPlanKeyIndex()
  /** Plans whose keys are enqueued after the plan's next pass, whatever its result. */
  const edited = new Set<string>()
  /** When a key was created or changed, until its pass. */
  const changedAt = new Map<string, number>()
  /** The keys that a plan's maxKeys admits, as of its last pass. */
  const admitted = new Map<string, Set<string>>()
  const ofNamespace = inTurn()
  /** Plans whose keys changed since they were last counted. */
  const touched = new Set<string>()

  const planOf = (name: string) => resources.get(refOf('Plan', name)) as PlanResource | null
  const keyOf = (name: string) => resources.get(refOf('ApiKey', name)) as ApiKeyResource | null

  function* siblingsOf(plan: string): Generator<ApiKeyResource> {
    for (const name of index.keysOf(plan)) {
      const key = keyOf(name)
      if (key) yield key
    }
  }

  /** The keys that compete for the plan's maxKeys; none while it has room for all. */
  function competingKeysOf(plan: string): Iterable<ApiKeyResource> {
    return index.keysOf(plan).size <= (planOf(plan)?.spec.keyPolicy.maxKeys ?? Infinity) ? [] : siblingsOf(plan)
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

  /** The other plans of a namespace whose plans have limits together: one that changed takes or leaves room. */
  function recheckOthers({ namespace, name }: Ref): void {
    for (const { metadata } of resources.list('Plan', namespace))
      if (metadata.name !== name) plans.add(subscriptionId(namespace, metadata.name), 'background')
  }

  function drop(kind: Ref['kind'], name: string): void {
    if (kind === 'Plan') return plans.drop(name)
    keys.drop(name)
    index.remove(name)
  }

  /** A new leader enqueues everything; what changed while there was no leader goes ahead of the rest. */
  function priorityOf(kind: Ref['kind'], name: string): Priority {
    return resources.isObserved(refOf(kind, name)) ? 'background' : 'urgent'
  }

  /** Enqueues a key of the store. Skips namespaces that this source does not serve or has not listed, since a missing resource is no deletion there. */
  function enqueueStored({ tenant, name: key, keyId, tell }: KeyVersion): void {
    if (!resources.serves(tenant)) return
    const name = subscriptionId(tenant, key)
    index.addUid(name, keyId)
    keys.add(name, tell.length > 0 ? 'urgent' : priorityOf('ApiKey', name))
  }

  return {
    changed(ref, priority) {
      const name = subscriptionId(ref.namespace, ref.name)
      // A process that is not the leader drops deleted resources: once it leads, `enqueueAll` finds them in the store.
      if (priority === 'background' && !resources.get(ref) && !resources.terminating(ref)) return drop(ref.kind, name)
      if (ref.kind === 'Plan') {
        if (priority === 'urgent') edited.add(name)
        plans.add(name, priority)
        return
      }
      if (priority === 'urgent') changedAt.set(name, performance.now())
      keys.add(name, priority)
      for (const plan of index.update(name, keyOf(name))) recount(plan)
    },
    plan: whenListed(context, async (name) => {
      const plan = planOf(name)
      const isEdited = edited.delete(name)
      try {
        const ref = refOf('Plan', name)
        const isLimited = limitsTogether(context.limits, ref.namespace)
        const pass = () => runPlanPass(context, ref, plan)
        const { requeueAt, isChanged } = await (isLimited ? ofNamespace(ref.namespace, pass) : pass())
        if (isLimited && isChanged) recheckOthers(ref)
        if (isChanged || isEdited) for (const key of index.keysOf(name)) keys.add(key, 'urgent')
        const siblings = [...siblingsOf(name)]
        readmit(name, plan, siblings)
        // A key that expires makes room for another.
        return nextTime([requeueAt, ...siblings.map(expiryOf)], clock())
      } catch (error) {
        // The failed pass may have written the record, so the next pass would find nothing changed.
        edited.add(name)
        throw error
      }
    }),
    key: whenListed(context, async (name) => {
      const key = keyOf(name)
      index.update(name, key)
      const terminating = resources.terminating(refOf('ApiKey', name))
      if (terminating) index.addUid(name, terminating.uid)
      for (const uid of index.deletedUids(name, key?.metadata.uid ?? null)) {
        for (const plan of await runDeletedKeyPass(context, refOf('ApiKey', name), uid)) recount(plan)
        index.removeUid(name, uid)
      }
      const since = changedAt.get(name)
      if (!key) {
        changedAt.delete(name)
        return null
      }
      const pass = await runKeyPass(context, key, competingKeysOf(subscriptionId(key.metadata.namespace, key.spec.planRef.name)))
      const { requeueAt, ready } = pass
      for (const plan of pass.touched) recount(plan)
      if (ready === 'becameReady' && since !== undefined) keyReady((performance.now() - since) / 1000)
      if (ready !== 'waitingForPlan') changedAt.delete(name)
      if (pass.rejection) throw pass.rejection
      return requeueAt
    }),
    passEnded() {
      if (keys.isIdle()) flush()
    },
    async reportStoreUnavailable(kind, name) {
      const ref = refOf(kind, name)
      const resource = resources.get(ref)
      if (!resource) return
      const status = await resources.status(ref)
      const now = clock()
      context.assertLeading()
      await resources.setStatus(ref, storeUnavailable(resource, status, now))
    },
    async enqueueAll() {
      for (const { metadata } of resources.list('Plan')) {
        const name = subscriptionId(metadata.namespace, metadata.name)
        plans.add(name, priorityOf('Plan', name))
      }
      for (const key of resources.list('ApiKey')) {
        const name = subscriptionId(key.metadata.namespace, key.metadata.name)
        index.update(name, key)
        keys.add(name, priorityOf('ApiKey', name))
      }
      for await (const { id, tenant } of readPages(BATCH, (after) => store.subscriptionsWith('plan', after, BATCH)))
        if (resources.serves(tenant)) plans.add(id, priorityOf('Plan', id))
      for await (const version of readPages(BATCH, (after) => store.keysAlive(after, BATCH))) enqueueStored(version)
      for (const version of await store.keysToTell(BATCH)) enqueueStored(version)
    },
  }
}

type Pass = Reconciler['plan']

function whenListed({ resources, clock }: PlanContext, pass: Pass): Pass {
  return async (name) => (resources.serves(refOf('Plan', name).namespace) ? pass(name) : clock() + UNLISTED_RETRY_MS)
}

function refOf(kind: Ref['kind'], name: string): Ref {
  const slash = name.indexOf('/')
  return { kind, namespace: name.slice(0, slash), name: name.slice(slash + 1) }
}

function storeUnavailable(resource: PlanResource | ApiKeyResource, status: unknown, now: number): PlanStatus | ApiKeyStatus {
  return resource.kind === 'Plan'
    ? planStoreUnavailable(resource, status as PlanStatus | null, now)
    : keyStoreUnavailable(resource, status as ApiKeyStatus | null, now)
}
