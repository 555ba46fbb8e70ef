/** A gateway scope over a real SQLite store, with the routes of a test and a clock that the test controls. */
import { createHash } from 'node:crypto'
import { mkdtemp, rm } from 'node:fs/promises'
import { join } from 'node:path'
import pino from 'pino'
import fastify, { type FastifyBaseLogger, type FastifyInstance } from 'fastify'
import { Registry } from 'prom-client'
import type { Test } from 'tap'
import auth from '../../plugins/auth/auth.ts'
import errors from '../../plugins/errors/errors.ts'
import type { Lingering } from '../../plugins/errors/lingering-close.ts'
import requestBody, { type RequestBodyOptions } from '../../plugins/request-body/request-body.ts'
import metering from '../../plugins/metering/metering.ts'
import ops from '../../plugins/ops/ops.ts'
import { openBroker } from '../../src/backends/broker/broker.ts'
import { readConfig } from '../../src/config/config.ts'
import { hashKey, keyVersionId, mint, seal, shownPrefix, type KeyVersion, type SealingKeys } from '../../src/domain/api-keys.ts'
import { termsOf } from '../../src/domain/plans.ts'
import type { PlanSpec } from '../../src/backends/resources/resources.ts'
import { openStore, type Store, type StoreOptions } from '../../src/backends/store/store.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { deriveKeys } from '../../src/domain/derived-keys.ts'
import { MEMORY } from '../memory-folder.ts'

export const START = Date.UTC(2026, 5, 1)
export const SEALING: SealingKeys = [Buffer.alloc(32, 1)]
export const DERIVED = deriveKeys(SEALING)

export type Gateway = {
  app: FastifyInstance
  store: Store
  storeUrl: string
  /** All log lines. */
  logged: Record<string, unknown>[]
  /** The time, epoch ms; assign to move it. */
  time: { now: number }
  /** Waits until the subscription has no reservations, because a response closes before its settlement is written. */
  settled(subscription: string): Promise<Subscription>
  /** Applies a Plan of tenant acme, and returns the subscription's id. */
  plan(name: string, spec: Partial<PlanSpec> & Pick<PlanSpec, 'product'>, generation?: number): Promise<string>
  /** Mints an active key for a subscription; resolves with the raw key and its stored version. */
  key(subscription: string, more?: Partial<KeyVersion>): Promise<{ raw: string; version: KeyVersion }>
}

const DEFAULTS = { state: 'Active', requestsPerMinute: 1_000_000, keyPolicy: { maxKeys: 5, rotationOverlapSeconds: 3600 } } as const

export const CODING: NonNullable<PlanSpec['coding']> = {
  sessionWindow: { tokens: 1000, durationSeconds: 18_000 },
  weeklyWindow: { tokens: 5000 },
  weights: { input: 1000, cachedInput: 1000, output: 1000 },
  onAbort: 'Cancel',
  maxConcurrentRequests: 32,
  maxOutputTokens: 65_536,
}

export const MEDIA: NonNullable<PlanSpec['media']> = { allowance: '10.00', periodDays: 30, maxConcurrentTasks: 4, maxQueuedTasks: 1000, attempts: 3 }

type Routes = (app: FastifyInstance) => void | Promise<void>

/** Opens it. `routes` registers routes after auth, intake and metering, `outside` routes without a key. */
export async function openGateway(t: Test, routes: Routes, outside: Routes = () => {}, env: Record<string, string> = {}, bodies: RequestBodyOptions = {}, lingering?: Lingering, options: StoreOptions = {}): Promise<Gateway> {
  const folder = await mkdtemp(join(MEMORY, 'tollgate-'))
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  const storeUrl = `sqlite:${join(folder, 'tollgate.db')}`
  const store = await openStore(storeUrl, options)
  const time = { now: START }
  const logged: Record<string, unknown>[] = []
  const log = pino({}, { write: (line: string) => logged.push(JSON.parse(line)) })
  const app: FastifyInstance = fastify({ loggerInstance: log as FastifyBaseLogger, disableRequestLogging: true })
  app.decorate('clock', () => time.now)
  app.decorate('store', store)
  // Unless told otherwise, configured as one of several gateways, so that it does not expire the reservations of others at its start.
  app.decorate('config', { ...readConfig(env).config, STORE_URL: env['STORE_URL'] ?? 'mongodb://shared' })
  app.decorate('broker', await openBroker('memory:'))
  await app.register(errors, lingering ? { lingering } : {})
  await app.register(ops, { registry: new Registry() })
  await app.register(async (gateway) => {
    await gateway.register(auth)
    await gateway.register(requestBody, bodies)
    await gateway.register(metering)
    await routes(gateway)
  })
  await outside(app)
  await app.ready()
  t.teardown(async () => {
    await app.close()
    await store.close()
  })
  let minted = 0
  return {
    app,
    store,
    storeUrl,
    logged,
    time,
    async settled(subscription) {
      for (;;) {
        const record = await store.subscription(subscription)
        if (record && Object.keys(record.coding?.reservations ?? {}).length === 0) return record
        await new Promise((resolve) => setImmediate(resolve))
      }
    },
    async plan(name, spec, generation = 1) {
      const id = `acme/${name}`
      const metadata = { name, namespace: 'acme', uid: name, generation, creationTimestamp: new Date(START).toISOString() }
      const plan = { apiVersion: 'tollgate.dev/v1alpha1', kind: 'Plan', metadata, spec: { ...DEFAULTS, ...spec } } as const
      const { product, state } = plan.spec
      await store.change(id, { op: 'applyPlan', plan: { uid: name, createdAt: START, generation }, product, terms: termsOf(plan), state, activeFrom: null, activeUntil: null, verdict: null }, time.now)
      return id
    },
    async key(subscription, more = {}) {
      const raw = mint('svc', createHash('sha256').update(`key ${minted++}`).digest())
      const keyId = more.keyId ?? `key${minted}`
      const id = keyVersionId(keyId, 0)
      const version: KeyVersion = {
        id, keyId, revision: 0, tenant: 'acme', name: keyId, subscription, product: subscription.includes('coder') ? 'Coding' : 'Media', hash: hashKey(raw),
        sealed: seal(raw, id, SEALING, new Uint8Array(12)), prefix: shownPrefix(raw), state: 'active', cap: null, issuedAt: time.now, expiresAt: null, endedAt: null,
        overlapUntil: null, secretName: null, tell: [], ...more,
      }
      await store.mintKey(version)
      return { raw, version }
    },
  }
}

export const bearer = (raw: string): { authorization: string } => ({ authorization: `Bearer ${raw}` })
