/** The two formats of /metrics, and which one a scraper gets. */
import pino from 'pino'
import { collectDefaultMetrics, Counter, Gauge, Histogram, Registry, Summary } from 'prom-client'
import t from 'tap'
import { exposition } from '../../plugins/ops/exposition.ts'
import { openOps } from '../../plugins/ops/ops-listener.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

const OPEN = 'application/openmetrics-text'
const TRACE_ID = '0af7651916cd43dd8448eb211c80319c'

/** Every type of metric, with characters that are escaped. */
function everyType(): Registry {
  const registry = new Registry()
  const registers = [registry]
  const awkward = 'a "quoted" \\ and\na line'
  const durations = new Histogram<string>({ name: 'run_seconds', help: awkward, labelNames: ['route'], buckets: [0.5, 2, 10], enableExemplars: true, registers: [] })
  registry.registerMetric(durations)
  for (const value of [0.0000001, 3, 400]) durations.observe({ labels: { route: awkward }, value, exemplarLabels: { trace_id: TRACE_ID } })
  new Counter({ name: 'runs_total', help: 'Runs.', labelNames: ['route'], registers }).inc({ route: awkward }, 2e21)
  new Counter({ name: 'unlabelled_total', help: 'Without labels.', registers }).inc(3)
  new Counter({ name: 'named_otherwise', help: 'A counter of a plugin.', registers }).inc(4)
  new Counter({ name: 'never_total', help: 'Without series.', labelNames: ['route'], registers })
  const gauge = new Gauge({ name: 'level', help: 'A gauge.', labelNames: ['of'], registers })
  for (const value of [NaN, Infinity, -Infinity, -1.5]) gauge.set({ of: String(value) }, value)
  new Summary({ name: 'size_bytes', help: 'A summary.', percentiles: [0.5, 0.99], registers }).observe(3)
  return registry
}

const open = async (registry: Registry) => (await exposition(registry, OPEN)).text

const ESCAPED = String.raw`(?:[^\n"\\]|\\[n"\\])*`
const LABELS = String.raw`\{(?:[a-zA-Z_]\w*="${ESCAPED}"(?:,[a-zA-Z_]\w*="${ESCAPED}")*)?\}`
const NUMBER = String.raw`(?:[+-]?\d+(?:\.\d*)?(?:e[+-]?\d+)?|[+-]Inf|Inf|NaN)`
const DESCRIPTOR = new RegExp(String.raw`^# (?:TYPE ([a-zA-Z_:][\w:]*) (counter|gauge|histogram|summary|unknown)|HELP ([a-zA-Z_:][\w:]*) ${ESCAPED})$`)
const SAMPLE = new RegExp(String.raw`^([a-zA-Z_:][\w:]*)(?:${LABELS})? ${NUMBER}( # (${LABELS}) ${NUMBER}(?: \d+(?:\.\d*)?)?)?$`, 'i')
const SUFFIXES: Record<string, RegExp> = { counter: /^_total$/, gauge: /^$/, unknown: /^$/, histogram: /^_(bucket|sum|count)$/, summary: /^(_sum|_count)?$/ }

/** Faults of a text by the grammar of OpenMetrics 1.0 and its rules for families, samples and exemplars. */
function faults(text: string): string[] {
  if (!text.endsWith('\n# EOF\n')) return ['it does not end with # EOF']
  const found: string[] = []
  const families = new Set<string>()
  const series = new Set<string>()
  let [family, type] = ['', '']
  for (const line of text.slice(0, -'\n# EOF\n'.length).split('\n')) {
    const [isDescriptor, typed, ofType, helped] = DESCRIPTOR.exec(line) ?? []
    const [isSample, name = '', exemplar, exemplarLabels = ''] = SAMPLE.exec(line) ?? []
    if (isDescriptor !== undefined) {
      const next = typed ?? helped ?? ''
      if (next !== family && families.has(next)) found.push(`a family twice: ${line}`)
      families.add(next)
      ;[family, type] = [next, ofType ?? (next === family ? type : '')]
    } else if (isSample === undefined) found.push(`no line of the grammar: ${line}`)
    else {
      const identity = line.replace(/ # \{.*$/, '').replace(/ \S+$/, '')
      if (series.has(identity)) found.push(`a series twice: ${line}`)
      series.add(identity)
      if (!name.startsWith(family) || !SUFFIXES[type]?.test(name.slice(family.length))) found.push(`a sample of another family: ${line}`)
      if (exemplar !== undefined && !/_(bucket|total)$/.test(name)) found.push(`an exemplar where none may be: ${line}`)
      if ([...exemplarLabels.replaceAll(/[{}",=]/g, '')].length > 128) found.push(`a long exemplar: ${line}`)
    }
  }
  return found
}

t.test('OpenMetrics has the lines of its grammar for every type of metric, with exemplars', async (t) => {
  const text = await open(everyType())
  t.same(faults(text), [])
  const expected = [
    '# HELP run_seconds a \\"quoted\\" \\\\ and\\na line',
    '# TYPE runs counter',
    'runs_total{route="a \\"quoted\\" \\\\ and\\na line"} 2e+21',
    'unlabelled_total 3',
    '# TYPE named_otherwise unknown',
    'named_otherwise 4',
    '# TYPE never counter',
    'level{of="-Infinity"} -Inf',
    'size_bytes{quantile="0.99"} 3',
  ]
  t.same(expected.filter((line) => !text.split('\n').includes(line)), [])
  t.same([...text.matchAll(/le="([^"]+)".* # \{trace_id="0af7651916cd43dd8448eb211c80319c"\} (\S+) \d+/g)].map(([, le, value]) => [le, value]), [['0.5', '1e-7'], ['10', '3'], ['+Inf', '400']])
})

t.test('the check of the grammar can fail', async (t) => {
  const text = await open(everyType())
  const broken = [text.replace('# EOF\n', ''), text.replace('\n# TYPE', '\n\n# TYPE'), text.replace('# TYPE runs c', '# TYPE runs_total c'), text.replace('level{', 'level{of="NaN"} 1\nlevel{'), text.replace('\\"quoted', '"quoted'), text.replace(TRACE_ID, 'a'.repeat(129))]
  for (const one of broken) t.not(faults(one).length, 0)
})

t.test('the whole program has OpenMetrics without fault, with the metrics of the process', async (t) => {
  const { app } = await openEmbeddedProgram(t)
  const { registry } = app.metrics
  collectDefaultMetrics({ register: registry })
  await app.inject('/nothing')
  const text = await open(registry)
  t.same(faults(text), [])
  t.match(text, /^tollgate_http_requests_total\{.*\} 1$/m)
})

t.test('the text format is the same, byte for byte, before and after OpenMetrics was served, and has the same samples', async (t) => {
  const registry = everyType()
  const before = await registry.metrics()
  const samples = (text: string) => text.split('\n').filter((line) => line !== '' && !line.startsWith('#')).map((line) => line.replace(/ # \{.*$/, '')).sort()
  t.same(samples(await open(registry)), samples(before))
  t.same(await exposition(registry, 'text/plain'), { contentType: 'text/plain; version=0.0.4; charset=utf-8', text: before })
  t.equal(await open(registry), await open(registry))
  t.notMatch(before, TRACE_ID)
})

/** As of the releases of Prometheus. */
const PROMETHEUS_2 = 'application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1'
const PROMETHEUS_3 = 'application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2'

t.test('a scraper gets OpenMetrics when its q value is the higher one, and otherwise the text format', async (t) => {
  const registry = everyType()
  const listener = await openOps({ host: '127.0.0.1', port: 0, role: 'worker', log: pino({ level: 'silent' }), checks: async () => [] })
  t.teardown(() => listener.close())
  const isOpen = async (accept: string) => (await exposition(registry, accept)).contentType.startsWith(OPEN)
  const preferring = [OPEN, PROMETHEUS_2, PROMETHEUS_3, `${OPEN}; version="1.0.0"; charset=utf-8`, 'Application/OpenMetrics-Text;Q=0.4, text/*;q=0.3', `text/plain;q=0, */*`, `${OPEN}, */*;q=0.9`, 'application/*']
  for (const accept of preferring) t.equal(await isOpen(accept), true, accept)
  const others = ['', '*/*', 'text/plain', 'text/html', `${OPEN};q=0`, `${OPEN};version=0.0.1`, `${OPEN};version=0.0.1, text/plain;q=0.1`, `${OPEN};q=0.3, text/plain;q=0.5`, `${OPEN}, text/plain`, `${OPEN};q=2, */*;q=0.1`, `${OPEN};q=0, */*`, 'text/plain;version=0.0.4;q=1,*/*;q=0.1', ',;,=;q']
  for (const accept of others) t.equal(await isOpen(accept), false, accept)
  for (const [accept, contentType] of [[PROMETHEUS_2, `${OPEN}; version=1.0.0; charset=utf-8`], ['*/*', 'text/plain; version=0.0.4; charset=utf-8']] as const) {
    const answer = await fetch(`${listener.url}/metrics`, { headers: { accept } })
    t.same([answer.status, answer.headers.get('content-type'), answer.headers.get('vary')], [200, contentType, 'accept'])
    t.match(await answer.text(), /^process_cpu_seconds_total /m)
  }
})
