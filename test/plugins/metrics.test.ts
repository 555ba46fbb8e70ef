/** docs/metrics.md names every metric that there is, with its type and its labels, and no other. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { Registry } from 'prom-client'
import t from 'tap'
import { sourceMetrics } from '../../plugins/controller/source-metrics.ts'
import { openWhole } from './whole.ts'

type Told = Record<string, { type: string; labels: string[] }>

/** The tables of the page, in order: a row for each metric. */
const tables: Told[] = readFileSync(join(import.meta.dirname, '../../docs/metrics.md'), 'utf8')
  .split('| metric | type | labels | |')
  .slice(1)
  .map((table) =>
    Object.fromEntries([...table.matchAll(/^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|/gm)].map(([, name = '', type = '', labels = '']) => [name, { type, labels: labels.split(',').map((label) => label.trim()).filter(Boolean) }])),
  )

/** What is registered. Labels and types are no part of the library's public type. */
function registered(registry: Registry): Told {
  const metrics = registry.getMetricsAsArray() as unknown as { name: string; type: string; labelNames: string[] }[]
  return Object.fromEntries(metrics.map(({ name, type, labelNames }) => [name, { type, labels: [...labelNames] }]))
}

t.test('the whole program has the metrics of the page, with their types and labels', async (t) => {
  const { app } = await openWhole(t)
  t.same(registered(app.metrics.registry), tables[0])
})

t.test('a role has metrics of the page alone', async (t) => {
  for (const role of ['gateway', 'worker', 'dispatcher', 'controller'] as const) {
    const { app } = await openWhole(t, { role })
    t.same(Object.keys(registered(app.metrics.registry)).filter((name) => !tables[0]?.[name]), [], role)
  }
})

t.test('METRICS_TENANT adds the tenant to what counts usage, and to nothing else', async (t) => {
  const { app } = await openWhole(t, { env: { METRICS_TENANT: 'true' } })
  const withTenant = Object.entries(registered(app.metrics.registry)).filter(([, { labels }]) => labels.includes('tenant'))
  t.same(withTenant.map(([name]) => name).sort(), ['tollgate_coding_tokens_total', 'tollgate_money_micro_total'])
})

t.test('a connection to an API server has the metrics of the second table', async (t) => {
  const registry = new Registry()
  sourceMetrics(registry, () => ({}) as never)
  t.same(registered(registry), tables[1])
})

t.test('names follow the conventions of Prometheus: counters end in _total, durations are seconds', async (t) => {
  for (const [name, { type }] of Object.entries({ ...tables[0], ...tables[1] })) {
    t.equal(name.endsWith('_total'), type === 'counter', name)
    if (type === 'histogram') t.match(name, /_seconds$/)
  }
})
