/** The Grafana dashboards: their JSON by Grafana's own types, and each query by Prometheus, over a running program with traffic. */
import { execFile } from 'node:child_process'
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { BOARDS } from '../../charts/dashboard-panels.ts'
import { dashboardOf, filled } from '../../charts/dashboards.ts'
import { CHART } from '../../charts/generate.ts'
import { installed, missing } from '../servers/client.ts'
import { ownPrometheus } from '../servers/prometheus.ts'
import { openSystem, sendTraffic } from './traffic.ts'

const ROOT = join(import.meta.dirname, '../..')

const queries = Object.values(BOARDS).flatMap(({ rows }) => rows.flatMap(({ panels }) => panels.flatMap((panel) => panel.queries.map((query) => ({ ...query, title: panel.title })))))

t.test('the files of the chart are those of charts/dashboard-panels.ts', async (t) => {
  for (const [name, board] of Object.entries(BOARDS)) t.same(JSON.parse(readFileSync(join(CHART, `files/dashboards/${name}.json`), 'utf8')), dashboardOf(board))
})

t.test('panels have ids and places of their own, and every metric of the gateway, tasks and the controller is on a board or has a reason', async (t) => {
  for (const [name, board] of Object.entries(BOARDS)) {
    const { panels } = dashboardOf(board) as { panels: { id: number; gridPos: { x: number; y: number } }[] }
    t.equal(new Set(panels.map(({ id }) => id)).size, panels.length, name)
    t.equal(new Set(panels.map(({ gridPos: { x, y } }) => `${x} ${y}`)).size, panels.length, name)
  }
  const documented = [...readFileSync(join(ROOT, 'docs/metrics.md'), 'utf8').matchAll(/^\| `(\w+)` \|/gm)].map(([, name = '']) => name)
  const shown = queries.map(({ expr }) => expr).join('\n')
  t.same(documented.filter((name) => !shown.includes(name)), NOT_SHOWN)
})

/** Details beside a metric that is shown. */
const NOT_SHOWN = [
  'tollgate_coding_early_output_tokens_total',
  'tollgate_store_records_healed_total',
  'controller_runtime_reconcile_errors_total',
  'controller_runtime_active_workers',
  'controller_runtime_max_concurrent_reconciles',
  'workqueue_adds_total',
  'workqueue_retries_total',
  'workqueue_work_duration_seconds',
  'workqueue_unfinished_work_seconds',
  'rest_client_request_duration_seconds',
  'tollgate_watch_starts_total',
  'tollgate_watch_failures_total',
  'tollgate_watch_lists_total',
  'tollgate_watch_missed_total',
]

t.test("the JSON has the types of Grafana's schema", async (t) => {
  if (missing(t, ['grafana-schema'])) return
  // Grafana publishes its schema as types for TypeScript; the JSON Schema made of the same source is in no registry.
  const schema = join(dirname(installed('grafana-schema')), 'dist/types/index.d.ts')
  const folder = t.testdir({})
  const files = Object.entries(BOARDS).map(([name, board]) => {
    const file = join(folder, `${name}.ts`)
    writeFileSync(file, `import type { Dashboard } from ${JSON.stringify(schema)}\nexport const dashboard: Dashboard = ${JSON.stringify(dashboardOf(board), null, 1)}\n`)
    return file
  })
  const misspelled = join(folder, 'misspelled.ts')
  writeFileSync(misspelled, `import type { Dashboard } from ${JSON.stringify(schema)}\nexport const dashboard: Dashboard = { schemaVersion: 39, panles: [] }\n`)
  const options = ['--noEmit', '--strict', '--skipLibCheck', '--allowImportingTsExtensions', '--ignoreConfig']
  const tsc = (...names: string[]) => promisify(execFile)(process.execPath, [join(ROOT, 'node_modules/typescript/bin/tsc'), ...options, ...names], { cwd: folder })
  await t.resolves(tsc(...files).catch((error: { stdout: string; stderr: string }) => Promise.reject(new Error(`${error.stdout}${error.stderr}`))))
  t.match(await tsc(misspelled).catch((error: { stdout: string }) => error.stdout), /panles/)
})

/** Panels of what the embedded program does not have, and of what did not happen: conflicts. */
const WITHOUT_DATA = ['Store: conflicts', 'Sends to the broker, p99', 'Restarted consumers of the broker', 'Leader', 'Age of the last watch event', 'Requests to the API server']

t.test('every query has a result over a running program with traffic', { timeout: 300_000 }, async (t) => {
  if (missing(t, ['prometheus'])) return
  const program = await openSystem(t)
  const prometheus = await ownPrometheus(t, [new URL(program.opsUrl).host])
  if (prometheus === null) return
  const missingOf = async (): Promise<string[]> => {
    const asked = await Promise.all(queries.map(async (query) => ({ query, found: await prometheus.query(filled(query, '30s', 'namespace=~".*"')) })))
    return asked.filter(({ found }) => !found.some(({ value: [, value] }) => value !== 'NaN')).map(({ query: { title } }) => title)
  }
  let without: string[] = []
  const until = Date.now() + 120_000
  await sendTraffic(t, program, async () => {
    without = [...new Set(await missingOf())]
    return without.length <= WITHOUT_DATA.length || Date.now() > until
  })
  t.same(without.sort(), [...WITHOUT_DATA].sort())
})
