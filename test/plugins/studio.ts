/** The Media API, a worker and a dispatcher over a real store, real files and a scriptable engine, in one process and on the test's clock. */
import { randomUUIDv7 } from 'node:crypto'
import type { FastifyInstance, LightMyRequestResponse } from 'fastify'
import type { Test } from 'tap'
import dispatcher from '../../plugins/dispatcher/dispatcher.ts'
import filesPlugin from '../../plugins/files/files.ts'
import media from '../../plugins/media/media.ts'
import worker from '../../plugins/worker/worker.ts'
import { openEgress } from '../../src/egress/egress.ts'
import { REFUSALS } from '../../src/egress/target-url.ts'
import { openFiles } from '../../src/backends/files/files.ts'
import { signedFileUrl } from '../../src/domain/signed-urls.ts'
import { countMoney } from '../../src/bootstrap/backend-metrics.ts'
import type { SubmitContext } from '../../src/tasks/quote-and-submit.ts'
import { monotonicUuids } from '../../src/tasks/task-ids.ts'
import type { PlanSpec } from '../../src/backends/resources/resources.ts'
import { fakeEngine, openFakeEngines, type FakeEngine } from '../fakes/engine.ts'
import { bearer, MEDIA, openGateway, SEALING, type Gateway } from './gateway.ts'

export type Studio = Gateway & {
  engine: FakeEngine
  subscription: string
  raw: string
  keyVersionId: string
  create(body?: object, headers?: Record<string, string>, query?: string): Promise<LightMyRequestResponse>
  get(path: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  post(path: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  /** Waits until the record satisfies; the loops work meanwhile. */
  until(id: string, satisfies: (record: Record<string, unknown>) => boolean): Promise<Record<string, unknown>>
}

export type StudioOptions = { media?: Partial<NonNullable<PlanSpec['media']>>; requestsPerMinute?: number; env?: Record<string, string>; loops?: boolean; also?: (app: FastifyInstance) => unknown }

/** Opens it with a plan `studio` of 10.00 and a key. Without `loops` nothing runs what is queued; `also` registers more beside the Media API. */
export async function openStudio(t: Test, { media: terms = {}, requestsPerMinute = 1_000_000, env = {}, loops = true, also = () => {} }: StudioOptions = {}): Promise<Studio> {
  const engine = fakeEngine()
  const engines = await openFakeEngines(t, engine)
  const folder = `${t.testdirName}-files`
  const files = await openFiles(`disk:${folder}`)
  const settings = { EGRESS_ALLOW: '127.0.0.1/32', SHUTDOWN_SECONDS: '1', WORKER_SLOTS: '4', ...env }
  const opened: Record<string, unknown> = {}
  const gateway = await openGateway(
    t,
    async (app) => {
      const egress = openEgress({ allow: app.config.EGRESS_ALLOW, clock: app.clock })
      const refusedUrl = (url: string) => {
        const refusal = egress.check(url)
        return refusal && REFUSALS[refusal]
      }
      const tasks: SubmitContext = {
        store: app.store, engines, refusedUrl, clock: app.clock, uuid: monotonicUuids(randomUUIDv7), random: () => 0, publish: app.broker.publish, moved: countMoney(app.metrics.registry, false), log: app.log,
        link: ({ file, expiresAt }) => `http://tollgate.test${signedFileUrl(file, expiresAt, SEALING)}`,
      }
      Object.assign(opened, { files, engines, egress, sealingKeys: SEALING, tasks })
      for (const [name, value] of Object.entries(opened)) app.decorate(name, value)
      await app.register(media, { prefix: '/api/v1' })
      await also(app)
    },
    async (root) => {
      for (const [name, value] of Object.entries(opened)) root.decorate(name, value)
      await root.register(filesPlugin)
      if (!loops) return
      await root.register(worker)
      await root.register(dispatcher)
    },
    settings,
  )
  t.teardown(async () => {
    await files.close()
  })
  const subscription = await gateway.plan('studio', { product: 'Media', media: { ...MEDIA, ...terms }, requestsPerMinute })
  const { raw, version } = await gateway.key(subscription)
  const get = (path: string, headers = {}) => gateway.app.inject({ url: path, headers: { ...bearer(raw), ...headers } })
  return {
    ...gateway,
    engine,
    subscription,
    raw,
    keyVersionId: version.id,
    create: (body = {}, headers = {}, query = '') =>
      gateway.app.inject({ method: 'POST', url: `/api/v1/generations${query}`, headers: { ...bearer(raw), ...headers }, payload: { kind: 'image', prompt: 'a lighthouse', ...body } }),
    get,
    post: (path, headers = {}) => gateway.app.inject({ method: 'POST', url: path, headers: { ...bearer(raw), ...headers } }),
    async until(id, satisfies) {
      for (;;) {
        const record = (await get(`/api/v1/generations/${id}`)).json() as Record<string, unknown>
        if (satisfies(record)) return record
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
    },
  }
}

export const isFinal = (record: Record<string, unknown>): boolean => ['completed', 'failed', 'canceled'].includes(String(record['status']))
