/** docs/metrics.md lists exactly the metrics of the program, with their types and labels. */
import { spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { setImmediate as nextIteration } from 'node:timers/promises'
import type { FastifyBaseLogger } from 'fastify'
import pino from 'pino'
import { Registry } from 'prom-client'
import t from 'tap'
import { controllerMetrics } from '../../plugins/controller/controller-metrics.ts'
import { openQueue, type Queue } from '../../plugins/controller/work-queue.ts'
import { apiServerMetrics } from '../../plugins/controller/api-server-metrics.ts'
import { startWorkers } from '../../plugins/controller/queue-workers.ts'
import { openOps } from '../../plugins/ops/ops-listener.ts'
import { need } from '../servers/client.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

type Documented = Record<string, { type: string; labels: string[] }>

/** The tables of the page, in order: a row for each metric. */
const tables: Documented[] = readFileSync(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8')
  .split('| metric | type | labels | |')
  .slice(1)
  .map((table) =>
    Object.fromEntries([...table.matchAll(/^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|/gm)].map(([, name = '', type = '', labels = '']) => [name, { type, labels: labels.split(',').map((label) => label.trim()).filter(Boolean) }])),
  )

/** Of the process, which has them before the application; the first: `test/bootstrap/log-output.test.ts`. */
const { tollgate_log_lines_dropped_total: _ofTheLog, tollgate_build_info, tollgate_check_ok, ...ofTheApplication } = tables[0] ?? {}

/** What is registered. Labels and types are no part of the library's public type. */
function registered(registry: Registry): Documented {
  const metrics = registry.getMetricsAsArray() as unknown as { name: string; type: string; labelNames: string[] }[]
  return Object.fromEntries(metrics.map(({ name, type, labelNames }) => [name, { type, labels: [...labelNames] }]))
}

t.test('role all has exactly the metrics of the page, with their types and labels', async (t) => {
  const { app } = await openEmbeddedProgram(t)
  t.same(registered(app.metrics.registry), ofTheApplication)
})

t.test('the operations listener has the metrics of the process, whatever the application', async (t) => {
  const listener = await openOps({ host: '127.0.0.1', port: 0, role: 'worker', log: pino({ level: 'silent' }), checks: async () => [] })
  t.teardown(() => listener.close())
  t.match(registered(listener.registry), { tollgate_build_info, tollgate_check_ok })
})

/** Families by the beginning of their names. */
const EVERY = ['tollgate_body', 'tollgate_http', 'tollgate_clock', 'tollgate_store', 'tollgate_egress', 'tollgate_broker']
const OF_TASKS = ['tollgate_files', 'tollgate_money']
const FAMILIES = {
  gateway: [...EVERY, ...OF_TASKS, 'tollgate_coding', 'tollgate_gateway', 'tollgate_window', 'tollgate_reserv', 'tollgate_readmissions', 'tollgate_upstream', 'tollgate_usage'],
  worker: [...EVERY, ...OF_TASKS, 'tollgate_task', 'tollgate_worker', 'tollgate_usage'],
  dispatcher: [...EVERY, 'tollgate_webhook'],
  controller: [...EVERY, 'tollgate_key', 'tollgate_declared', 'tollgate_manifests', 'controller_runtime', 'workqueue'],
} as const

t.test('each role has exactly the metrics of its families', async (t) => {
  for (const role of ['gateway', 'worker', 'dispatcher', 'controller'] as const) {
    const { app } = await openEmbeddedProgram(t, { role })
    const expected = Object.entries(ofTheApplication).filter(([name]) => FAMILIES[role].some((family) => name.startsWith(family)))
    t.same(registered(app.metrics.registry), Object.fromEntries(expected), role)
  }
  const all = Object.values(FAMILIES).flat()
  t.same(Object.keys(ofTheApplication).filter((name) => !all.some((family) => name.startsWith(family))), [], 'every metric belongs to a role')
})

t.test('METRICS_TENANT adds the tenant to the usage counters and to what is declared only', async (t) => {
  const { app } = await openEmbeddedProgram(t, { env: { METRICS_TENANT: 'true' } })
  const withTenant = Object.entries(registered(app.metrics.registry)).filter(([, { labels }]) => labels.includes('tenant'))
  t.same(withTenant.map(([name]) => name).sort(), ['tollgate_coding_tokens_total', 'tollgate_declared_plans_used', 'tollgate_declared_resources', 'tollgate_declared_resources_ending', 'tollgate_money_micro_total'])
})

t.test('a connection to an API server has the metrics of the second table', async (t) => {
  const registry = new Registry()
  apiServerMetrics(registry, { stats: () => ({}) as never, observe: () => {}, isLeading: () => true })
  t.same(registered(registry), tables[1])
})

t.test('names follow the conventions of Prometheus: counters end in _total, histograms in their unit', async (t) => {
  for (const [name, { type }] of Object.entries({ ...tables[0], ...tables[1] })) {
    t.equal(name.endsWith('_total'), type === 'counter', name)
    if (type === 'histogram') t.match(name, /_(seconds|ratio)$/)
    t.notMatch(name, /(milli|micro|nano)seconds|_ms\b|_minutes|kilobytes|percent/)
  }
})

t.test('promtool finds nothing to correct', async (t) => {
  const prometheus = need(t, 'prometheus')
  if (prometheus === null) return
  const { app } = await openEmbeddedProgram(t)
  const linted = spawnSync(join(prometheus, '../promtool'), ['check', 'metrics'], { input: await app.metrics.registry.metrics(), encoding: 'utf8' })
  t.same([linted.status, linted.stdout, linted.stderr], [0, '', ''])
})

t.test('work queue metrics show the age of unfinished work, the oldest and the sum', async (t) => {
  let nowMs = 0
  t.intercept(performance, 'now', { value: () => nowMs })
  const registry = new Registry()
  const metrics = controllerMetrics(registry)
  metrics.queue('idle', () => null)
  const queue: Queue = openQueue({ after: () => () => {}, random: () => 0, observer: metrics.queue('plan', () => queue) })
  const ends = new Map<string, () => void>()
  const reconcile = (name: string) => new Promise<null>((resolve) => ends.set(name, () => resolve(null)))
  const common = { reportStoreUnavailable: async () => {}, passEnded: () => {}, clock: () => 0, log: {} as FastifyBaseLogger }
  const working = startWorkers({ ...common, name: 'plan', queue, count: 2, reconcile, metrics })
  const shown = async (name: string) => {
    const { values } = (await registry.getSingleMetric(`workqueue_${name}_seconds`)?.get()) ?? { values: [] }
    return Object.fromEntries(values.map(({ labels, value }) => [`${labels['name']} ${labels['controller']}`, value]))
  }
  const figures = async () => ({ sum: await shown('unfinished_work'), longest: await shown('longest_running_processor') })
  const none = { 'plan plan': 0, 'idle idle': 0 }
  t.same(await figures(), { sum: none, longest: none })
  t.match(await registry.getSingleMetric('controller_runtime_max_concurrent_reconciles')?.get(), { values: [{ labels: { controller: 'plan' }, value: 2 }] })

  queue.add('stuck', 'urgent')
  await nextIteration()
  nowMs = 2_000
  queue.add('other', 'urgent')
  await nextIteration()
  nowMs = 3_000
  t.same(await figures(), { sum: { ...none, 'plan plan': 4 }, longest: { ...none, 'plan plan': 3 } })
  ends.get('stuck')?.()
  await nextIteration()
  t.same(await figures(), { sum: { ...none, 'plan plan': 1 }, longest: { ...none, 'plan plan': 1 } })
  ends.get('other')?.()
  queue.stop()
  await working
  t.same(await figures(), { sum: none, longest: none })
})
