/** Prometheus scrapes OpenMetrics of a running program, with exemplars that lead to its traces. */
import { createServer } from 'node:http'
import t, { type Test } from 'tap'
import { openOtlpReceiver } from '../fakes/otlp-receiver.ts'
import { chat, post } from '../flows/calls.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { start } from '../flows/program.ts'
import { missing } from '../servers/client.ts'
import { ownPrometheus, type Sample } from '../servers/prometheus.ts'
import { listening } from '../fakes/listening.ts'

/** Serves the text format of `/metrics` of `opsUrl`, whatever a scraper prefers, and notes what it prefers. Resolves with its `host:port`. */
async function openTextRelay(t: Test, opsUrl: string): Promise<{ host: string; accepted: Set<string> }> {
  const accepted = new Set<string>()
  const server = createServer(async ({ headers }, response) => {
    accepted.add(headers.accept ?? '')
    const answer = await fetch(`${opsUrl}/metrics`, { headers: { accept: 'text/plain' } })
    response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' }).end(await answer.text())
  })
  return { host: `127.0.0.1:${await listening(t, server)}`, accepted }
}

/** Samples without what differs between two targets and changes by itself, sorted. */
function comparable(samples: Sample[]): string[] {
  return samples.map(({ metric: { instance: _target, ...labels }, value: [, value] }) => JSON.stringify([Object.entries(labels).sort(), value])).sort()
}

/** Metrics that only requests change. */
const OF_REQUESTS = '__name__=~"tollgate_(http|coding|upstream|gateway|window|reserv|money|build).*"'

t.test('Prometheus finds the series and values of the text format in OpenMetrics, and exemplars of sampled requests', { timeout: 300_000 }, async (t) => {
  if (missing(t, ['prometheus'])) return
  const otlp = await openOtlpReceiver(t)
  const folder = t.testdir()
  await declare(folder, 'plans', codingPlan('code'), apiKey('code-key', 'code'), mediaPlan('studio'), apiKey('studio-key', 'studio'))
  const program = await start({ folder, env: otlp.env })
  t.teardown(() => program.kill())
  const relay = await openTextRelay(t, program.opsUrl)
  const open = new URL(program.opsUrl).host
  const prometheus = await ownPrometheus(t, [open, relay.host])
  if (prometheus === null) return
  t.equal((await chat(program, await program.key('code-key'))).status, 200)
  const answer = await post(program, await program.key('studio-key'), '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64' })
  t.equal(answer.status, 202)
  await answer.text()

  for (const [route, product] of [['/v1/chat/completions', 'coding'], ['/api/v1/generations', 'media']] as const) {
    const { traceId } = await otlp.span(`POST ${route}`)
    const found = await eventually(`the exemplar of ${route}`, async () => (await prometheus.exemplars(`tollgate_http_request_duration_seconds_bucket{route="${route}"}`)).find(({ traceIds }) => traceIds.includes(traceId)) ?? null)
    t.match(found.labels, { instance: open, product, method: 'POST' }, 'the text format has no exemplars')
  }

  const [ofOpen, ofText] = await eventually('the same series of both formats', async () => {
    const [a, b] = await Promise.all([open, relay.host].map(async (target) => comparable(await prometheus.query(`{${OF_REQUESTS}, instance="${target}"}`))))
    return a !== undefined && b !== undefined && a.length > 0 && a.join() === b.join() ? ([a, b] as const) : null
  })
  t.same(ofOpen, ofText)
  t.match(ofOpen.join('\n'), 'tollgate_money_micro_total')
  const names = async (target: string) => (await prometheus.query(`group by (__name__) ({instance="${target}"})`)).map(({ metric }) => metric['__name__']).sort()
  await eventually('the same names of both formats', async () => ((await names(open)).join() === (await names(relay.host)).join() ? true : null))
  t.ok([...relay.accepted].every((accept) => accept.startsWith('application/openmetrics-text')), 'this Prometheus prefers OpenMetrics')
})
