/** Test fixture: the Media API, a worker and a dispatcher over a real store, real files and a scripted engine, in one process with the test's clock. */
import { randomUUIDv7 } from 'node:crypto'
import { rm } from 'node:fs/promises'
import type { FastifyInstance, LightMyRequestResponse } from 'fastify'
import type { Test } from 'tap'
import dispatcher from '../../plugins/dispatcher/dispatcher.ts'
import filesPlugin from '../../plugins/files/files.ts'
import media from '../../plugins/media/media.ts'
import taskWatch from '../../plugins/task-watch/task-watch.ts'
import worker from '../../plugins/worker/worker.ts'
import { openEgress } from '../../src/egress/egress.ts'
import type { Lookup } from '../../src/egress/dns-lookup.ts'
import { REFUSALS } from '../../src/egress/target-url.ts'
import { openFiles, type Files } from '../../src/backends/files/files.ts'
import { linkedFile, signedFileUrl } from '../../src/domain/signed-urls.ts'
import { countMoney } from '../../src/bootstrap/backend-metrics.ts'
import { partsAtRate, type MinimumRate } from '../../src/http/minimum-body-rate.ts'
import { openSourceProbes } from '../../src/tasks/probe-sources.ts'
import { openUploads, type UploadLimits } from '../../src/tasks/receive-upload.ts'
import { openFileInfo } from '../../src/tasks/source-info.ts'
import type { SubmitContext } from '../../src/tasks/submit.ts'
import { monotonicUuids } from '../../src/tasks/task-ids.ts'
import type { PlanSpec } from '../../src/backends/resources/resources.ts'
import { FAKE_OPERATIONS, fakeEngine, openFakeEngines, type FakeEngine } from '../fakes/engine.ts'
import { bearer, DERIVED, MEDIA, openGateway, SEALING, type Gateway } from './gateway.ts'

export type Studio = Gateway & {
  engine: FakeEngine
  subscription: string
  raw: string
  keyVersionId: string
  create(body?: object, headers?: Record<string, string>, query?: string): Promise<LightMyRequestResponse>
  /** Creates a generation whose run hangs, the first of this engine. Its id, once it runs. */
  hanging(body?: object, headers?: Record<string, string>): Promise<string>
  /** Creates an operation. */
  operate(body: object, headers?: Record<string, string>, query?: string): Promise<LightMyRequestResponse>
  get(path: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  post(path: string, headers?: Record<string, string>): Promise<LightMyRequestResponse>
  /** Waits until the task satisfies the predicate; the loops work meanwhile. */
  until(id: string, satisfies: (record: Record<string, unknown>) => boolean, collection?: 'generations' | 'operations'): Promise<Record<string, unknown>>
}

export type StudioOptions = { media?: Partial<NonNullable<PlanSpec['media']>>; requestsPerMinute?: number; env?: Record<string, string>; loops?: boolean; probes?: boolean; engines?: string; lookup?: Lookup; workerKinds?: string[]; also?: (app: FastifyInstance) => unknown; outside?: (root: FastifyInstance) => unknown; files?: Files; uploadLimits?: Partial<UploadLimits>; uploadRate?: MinimumRate }

/** Opens it with a plan `studio` of 10.00 and a key. Without `loops` no queued task runs; `engines` is the ENGINES file, `workerKinds` are those of the worker, `lookup` resolves names for the egress guard, with `probes` creations ask sources elsewhere what they are, whose servers otherwise answer the runs alone, as scripted, `also` registers further plugins behind a key, `outside` without one; `files` replaces the folder of results; `uploadLimits` and `uploadRate` those of uploads. */
export async function openStudio(t: Test, { media: terms = {}, requestsPerMinute = 1_000_000, env = {}, loops = true, probes = false, engines: file = FAKE_OPERATIONS, lookup, workerKinds, also = () => {}, outside = () => {}, files: given, uploadLimits = {}, uploadRate }: StudioOptions = {}): Promise<Studio> {
  const engine = fakeEngine()
  const engines = await openFakeEngines(t, engine, file)
  const folder = `${t.testdirName}-files`
  await rm(folder, { recursive: true, force: true })
  const files = given ?? (await openFiles(`disk:${folder}`))
  // Teardowns run last to first: the worker, which openGateway closes, still writes results into the folder.
  t.teardown(async () => {
    await files.close()
    await rm(folder, { recursive: true, force: true })
  })
  // The only process of its store, so that its worker knows that no outage came before its start.
  const settings = { STORE_URL: 'sqlite:tollgate.db', EGRESS_ALLOW: '127.0.0.1/32', SHUTDOWN_SECONDS: '1', WORKER_SLOTS: '4', ...env }
  const opened: Record<string, unknown> = {}
  const gateway = await openGateway(
    t,
    async (app) => {
      const egress = openEgress({ allow: app.config.EGRESS_ALLOW, clock: app.clock, ...(lookup ? { lookup } : {}) })
      const refusedUrl = (url: string) => {
        const refusal = egress.check(url)
        return refusal && REFUSALS[refusal]
      }
      const tasks: SubmitContext = {
        store: app.store, files, engines, refusedUrl, fileInfo: openFileInfo(files), probeSources: probes ? openSourceProbes({ egress, clock: app.clock, deadlineMs: 60_000 }) : async (_plan, urls) => urls.map(() => null), clock: app.clock, uuid: monotonicUuids(randomUUIDv7), random: () => 0, publish: app.broker.publish, moved: countMoney(app.metrics.registry, false), log: app.log,
        link: ({ file, expiresAt }) => `http://tollgate.test${signedFileUrl(file, expiresAt, DERIVED.links)}`, linkedFile: (url) => linkedFile(url, DERIVED.links), resultMs: app.config.RESULT_MS,
      }
      Object.assign(opened, { files, engines, egress, sealingKeys: SEALING, derivedKeys: DERIVED, tasks, uploads: openUploads(tasks, (body) => partsAtRate(body, uploadRate), uploadLimits) })
      for (const [name, value] of Object.entries(opened)) app.decorate(name, value)
      await app.register(taskWatch)
      await app.register(media, { prefix: '/api/v1' })
      await also(app)
    },
    async (root) => {
      for (const [name, value] of Object.entries(opened)) root.decorate(name, value)
      await root.register(filesPlugin)
      await outside(root)
      if (!loops) return
      await root.register(worker, workerKinds ? { kinds: workerKinds } : {})
      await root.register(dispatcher)
    },
    settings,
  )
  const subscription = await gateway.plan('studio', { product: 'Media', media: { ...MEDIA, ...terms }, requestsPerMinute })
  const { raw, version } = await gateway.key(subscription)
  const create = (body = {}, headers = {}, query = '') =>
    gateway.app.inject({ method: 'POST', url: `/api/v1/generations${query}`, headers: { ...bearer(raw), ...headers }, payload: { kind: 'image', prompt: 'a lighthouse', ...body } })
  const get = (path: string, headers = {}) => gateway.app.inject({ url: path, headers: { ...bearer(raw), ...headers } })
  return {
    ...gateway,
    engine,
    subscription,
    raw,
    keyVersionId: version.id,
    create,
    async hanging(body, headers) {
      engine.next('hang')
      const { id } = (await create(body, headers)).json()
      await engine.begun(1)
      return id as string
    },
    get,
    post: (path, headers = {}) => gateway.app.inject({ method: 'POST', url: path, headers: { ...bearer(raw), ...headers } }),
    operate: (body, headers = {}, query = '') =>
      gateway.app.inject({ method: 'POST', url: `/api/v1/operations${query}`, headers: { ...bearer(raw), ...headers }, payload: body }),
    async until(id, satisfies, collection = 'generations') {
      for (;;) {
        const record = (await get(`/api/v1/${collection}/${id}`)).json() as Record<string, unknown>
        if (satisfies(record)) return record
        await new Promise((resolve) => setTimeout(resolve, 5))
      }
    },
  }
}

export const isFinal = (record: Record<string, unknown>): boolean => ['completed', 'failed', 'canceled'].includes(String(record['status']))
