/** Usage records in the running program, and what becomes of them after their charge. */
import fastify, { type FastifyInstance } from 'fastify'
import { Registry } from 'prom-client'
import t, { type Test } from 'tap'
import usageRecords from '../../plugins/usage-records/usage-records.ts'
import { isCodingUsage, type UsageRecord } from '../../src/domain/usage-records.ts'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import { admit, ID, plan, settle, T0 } from '../contracts/store/acme.ts'
import { eventually } from '../flows/eventually.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { bearer } from './gateway.ts'

const ALL = { since: 0, until: Infinity }
const DAY_MS = 24 * 3_600_000

t.test('a coding request and a task have one usage record each, which says what they were charged', async (t) => {
  const { app, key } = await openEmbeddedProgram(t, { env: { USAGE_DAYS: '30' } })
  const [coding, media] = [bearer(await key('demo-coding-key')), bearer(await key('demo-media-key'))]
  const payload = { model: 'svc-code', messages: [{ role: 'user', content: 'Say hello.' }] }
  const answer = await app.inject({ method: 'POST', url: '/v1/chat/completions', headers: coding, payload })
  const { usage } = answer.json()
  t.equal(answer.statusCode, 200)
  const created = await app.inject({ method: 'POST', url: '/api/v1/generations', headers: media, payload: { kind: 'image', prompt: 'A lighthouse' } })
  const { id } = created.json()
  const records = (subscription: string) => app.store.usageRecords(subscription, ALL, null, 10)
  const [request] = await eventually('the record of the request', async () => ((await records('demo/coder')).length > 0 ? records('demo/coder') : null))
  const { session } = (await app.inject({ url: '/v1/usage', headers: coding })).json()
  t.match(request, { usage: { input: usage.prompt_tokens, output: usage.completion_tokens }, charged: session.used, isEstimated: false })
  const [task, ...others] = await eventually('the record of the task', async () => ((await records('demo/studio')).length > 0 ? records('demo/studio') : null))
  t.match(task, { id, kind: 'image', cost: 0 })
  t.same(others, [])
  const listed = async (url: string, headers: object) => (await app.inject({ url, headers: headers as never })).json()
  await app.inject({ method: 'POST', url: '/v1/chat/completions', headers: coding, payload })
  const [event] = await eventually('the list of the coding plan', async () => ((await listed('/v1/usage/records', coding)).data.length > 0 ? (await listed('/v1/usage/records', coding)).data : null))
  t.match(event, { id: request?.id, type: 'dev.tollgate.usage.coding.v1', subject: 'demo', data: { plan: 'coder', charged_tokens: session.used } })
  t.match(await listed('/api/v1/usage/records?limit=1', media), { object: 'list', has_more: false })
  for (const [url, headers] of [['/v1/usage/records?limit=0', coding], ['/api/v1/usage/records?cursor=x', media], ['/v1/usage/records?until=never', coding]] as const)
    t.equal((await app.inject({ url, headers })).statusCode, 400, url)
  t.same((await Promise.all(['/v1/usage/records', '/api/v1/usage/records'].map((url) => app.inject(url)))).map(({ statusCode }) => statusCode), [401, 401])
  t.equal((await app.inject({ url: '/api/v1/usage/records', headers: coding })).statusCode, 403)
  const { by } = (await app.inject({ url: '/api/v1/usage', headers: media })).json()
  t.same(Object.keys(by[0]).sort(), ['burned', 'count', 'date', 'kind'], 'clients see nothing of it in the sums')
})

/** A store with three charges, each a millisecond after the other, and what runs the plugin over it. */
async function charged(t: Test): Promise<{ store: Store; time: { now: number }; run(publish: Publish, usageMs: number): Promise<Run> }> {
  const store = await openStore(`sqlite:${t.testdir()}/tollgate.db`, { recordsUsage: true, publishesUsage: true })
  t.teardown(() => store.close())
  const time = { now: T0 }
  await store.change(ID, plan(), time.now)
  for (const id of ['a', 'b', 'c']) {
    await store.change(ID, admit(id, 5), time.now)
    await store.change(ID, settle(id, 5), time.now++)
  }
  async function run(publishUsage: Publish, usageMs: number): Promise<Run> {
    const lines: { event: string }[] = []
    const registry = new Registry()
    const app = fastify({ logger: { stream: { write: (line: string) => void lines.push(JSON.parse(line)) } } })
    app.decorate('store', store)
    app.decorate('clock', () => time.now)
    app.decorate('broker', { publishUsage } as never)
    app.decorate('config', { USAGE_MS: usageMs } as never)
    app.decorate('metrics', { registry })
    app.register(Object.assign(async () => {}, { [Symbol.for('skip-override')]: true, [Symbol.for('fastify.display-name')]: 'ops', [Symbol.for('plugin-meta')]: { name: 'ops' } }))
    app.register(usageRecords)
    t.teardown(() => app.close())
    await app.ready()
    return { app, events: () => lines.map(({ event }) => event).filter((event) => event?.startsWith('usage_')), age: async () => (await registry.getSingleMetric('tollgate_usage_unpublished_age_seconds')!.get()).values[0]!.value }
  }
  return { store, time, run }
}
type Publish = ((records: UsageRecord[]) => Promise<void>) | null
type Run = { app: FastifyInstance; events(): string[]; age(): Promise<number> }

const kept = async (store: Store) => (await store.usageRecords(ID, ALL, null, 10)).map(({ id }) => id)

t.test('usage records are published once they are stored, again after a failure, and removed after USAGE_DAYS', async (t) => {
  const { store, time, run } = await charged(t)
  const published: UsageRecord[][] = []
  await run(async (records) => {
    published.push(records)
    if (published.length === 1) throw new Error('no answer came')
  }, DAY_MS)
  await eventually('nothing is to be published', async () => ((await store.unpublishedUsage(10)).length === 0 ? true : null))
  t.same(published.map((records) => records.map(({ id }) => id)), [['a', 'b', 'c'], ['a', 'b', 'c']])
  t.ok(published.flat().every(isCodingUsage))
  time.now = T0 + DAY_MS + 2
  await eventually('the old ones are gone', async () => ((await kept(store)).length === 1 ? true : null))
  t.same(await kept(store), ['c'])
})

t.test('while the broker is away what it has is removed after USAGE_DAYS and the rest is not; the log says when it began and ended', async (t) => {
  const { store, time, run } = await charged(t)
  await store.usagePublished((await store.unpublishedUsage(10)).filter(({ id }) => id === 'b'))
  time.now = T0 + 2 * DAY_MS
  let attempts = 0
  const { events, age } = await run(async () => {
    if (attempts++ < 3) throw new Error('the broker is away')
  }, DAY_MS)
  await eventually('the published one is gone', async () => ((await kept(store)).length === 2 ? true : null))
  t.same(await kept(store), ['a', 'c'])
  t.equal(await age(), 2 * 86_400)
  await eventually('the others are, once they are published', async () => ((await kept(store)).length === 0 ? true : null))
  await eventually('the log says so', async () => (events().length > 1 ? true : null))
  t.same([attempts, events()], [4, ['usage_records_failed', 'usage_records_recovered']])
  t.equal(await eventually('nothing waits', async () => ((await age()) === 0 ? 0 : null)), 0)
})

t.test('without USAGE_DAYS what was left is still published, and nothing is removed', async (t) => {
  const { store, run, time } = await charged(t)
  time.now = T0 + 5000 * DAY_MS
  const { app } = await run(async () => {}, 0)
  await eventually('nothing is to be published', async () => ((await store.unpublishedUsage(10)).length === 0 ? true : null))
  await app.close()
  t.same(await kept(store), ['a', 'b', 'c'])
  t.equal(await store.takeLease('usage-records', 'another', time.now + 5_000, time.now), true, 'a process that stops leaves the work to others at once')
})

t.test('the program publishes and stores usage records without USAGE_DAYS as well', async (t) => {
  const { app } = await openEmbeddedProgram(t)
  t.ok(app.hasPlugin('usage-records'))
})
