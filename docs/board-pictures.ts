/** Makes the pictures of docs/metrics.md: `node docs/board-pictures.ts`. It sends traffic to a running program for five minutes, and draws what the queries of the boards return. Needs Prometheus. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { BOARDS, type Panel } from '../charts/dashboard-panels.ts'
import { filled } from '../charts/dashboards.ts'
import { openSystem, sendTraffic } from '../test/monitoring/traffic.ts'
import { ownPrometheus, type Prometheus } from '../test/servers/prometheus.ts'
import { boardSvg, type Series } from './board-svg.ts'

const PICTURES = join(import.meta.dirname, 'boards')
const [SECONDS, STEP_SECONDS] = [300, 5]

async function seriesOf(prometheus: Prometheus, { queries }: Panel): Promise<Series[]> {
  const answers = queries.map(async (query) => {
    const found = await prometheus.queryRange(filled(query, '30s', 'namespace=~".*"'), SECONDS, STEP_SECONDS)
    return found.map(({ metric, values }) => ({
      name: query.legend.replaceAll(/\{\{(\w+)\}\}/g, (_all, label: string) => metric[label] ?? ''),
      // A quantile of nothing is NaN.
      samples: values.map(([at, value]): [number, number] => [at, Number(value)]).filter(([, value]) => Number.isFinite(value)),
    }))
  })
  return (await Promise.all(answers)).flat().filter(({ samples }) => samples.length > 0)
}

t.setTimeout(1_800_000)

t.test('pictures of the boards', async (t) => {
  const program = await openSystem(t)
  const prometheus = await ownPrometheus(t, [new URL(program.opsUrl).host])
  if (prometheus === null) return
  const end = Date.now() + SECONDS * 1000
  await sendTraffic(t, program, async () => Date.now() > end)
  mkdirSync(PICTURES, { recursive: true })
  const of = async (panel: Panel) => [panel, await seriesOf(prometheus, panel)] as const
  const series = new Map(await Promise.all(Object.values(BOARDS).flatMap(({ rows }) => rows.flatMap(({ panels }) => panels.map(of)))))
  const last = Math.max(...[...series.values()].flat().flatMap(({ samples }) => samples.map(([at]) => at)))
  for (const [name, board] of Object.entries(BOARDS)) writeFileSync(join(PICTURES, `${name}.svg`), boardSvg(board, [last - SECONDS, last], (panel) => series.get(panel) ?? []))
})
