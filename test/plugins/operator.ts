/** Controllers over a real store and a real API server, by the machine's clock. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fastify, { type FastifyInstance } from 'fastify'
import { Registry } from 'prom-client'
import type { Test } from 'tap'
import controller from '../../plugins/controller/controller.ts'
import { hashKey, type KeyVersion } from '../../src/domain/api-keys.ts'
import type { PlanLimits } from '../../src/domain/plan-limits-by-namespace.ts'
import type { KubernetesOptions } from '../../src/backends/resources/kubernetes/kubernetes.ts'
import type { Ref, Resources } from '../../src/backends/resources/resources.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { eventually } from '../flows/eventually.ts'
import { conditions } from '../domain/reconcile/reconcile-world.ts'
import { openCluster, type Cluster } from '../backends/resources/cluster.ts'
import { SEALING } from './tenant.ts'

export type Controller = {
  app: FastifyInstance
  resources: Resources
  registry: Registry
  /** Requests that change something, by method, Leases and Events included. */
  writes(): number
  close(): Promise<void>
}

/** Dependencies of a controller; by default the machine's clock and timers, the operator's store, and no plan limits. */
export type World = { clock?: () => number; after?: (ms: number, run: () => void) => () => void; store?: Store; limits?: PlanLimits }

export type Operator = Cluster & {
  store: Store
  start(options?: KubernetesOptions, kubeconfig?: string, world?: World): Promise<Controller>
  /** Waits until the conditions of a resource are these. */
  becomes(ref: Ref, wanted: Record<string, string>): Promise<void>
  /** The store's version of the key in a Secret. */
  usableBySecret(name: string): Promise<KeyVersion | null>
  ref(kind: Ref['kind'], name: string): Ref
}

/** `storeUrl` is that of an empty store; a database file of the operator's own if absent. */
export async function openOperator(t: Test, kubeconfig: string, storeUrl?: string): Promise<Operator> {
  const cluster = await openCluster(t, kubeconfig)
  const root = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const store = await openStore(storeUrl ?? `sqlite:${join(root, 'tollgate.db')}`)
  const started: Controller[] = []
  t.teardown(async () => {
    for (const one of started) await one.close()
    await store.close()
    await rm(root, { recursive: true })
  })
  const namespace = cluster.namespace('acme')

  return {
    ...cluster,
    store,
    ref: (kind, name) => ({ kind, namespace, name }),
    async start(options, config, world = {}) {
      const resources = await cluster.open(options, config)
      const registry = new Registry()
      const app = fastify({ logger: false })
      app.decorate('clock', world.clock ?? Date.now)
      app.decorate('store', world.store ?? store)
      app.decorate('resources', resources)
      app.decorate('sealingKeys', SEALING)
      app.decorate('planLimits', world.limits ?? null)
      app.decorate('engines', { offer: () => null } as never)
      app.decorate('config', { BRAND: 'SVC' } as FastifyInstance['config'])
      app.decorate('metrics', { registry })
      app.decorate('checks', [])
      await app.register(controller, world.after ? { after: world.after } : {})
      await app.ready()
      const one: Controller = {
        app: app as unknown as FastifyInstance,
        resources,
        registry,
        writes: () => (resources.stats()?.requests ?? []).filter(({ method }) => method !== 'GET').reduce((sum, { count }) => sum + count, 0),
        async close() {
          await app.close()
          await resources.close()
        },
      }
      started.push(one)
      return one
    },
    async becomes(ref, wanted) {
      let last: unknown = null
      await eventually(`${ref.name} to become ${JSON.stringify(wanted)}`, async () => {
        const found = await cluster.object(ref)
        last = found && conditions(found.status)
        return found && Object.entries(wanted).every(([type, text]) => (last as Record<string, string>)[type] === text) ? true : null
      }).catch((error: Error) => {
        throw new Error(`${error.message}; it is ${JSON.stringify(last)}`)
      })
    },
    async usableBySecret(name) {
      const entries = await cluster.secretEntries(namespace, name)
      return entries && store.findKey(hashKey(entries['api-key'] ?? ''))
    },
  }
}
