/** Usage records in the running program, and what becomes of them after their charge. */
import fastify from 'fastify'
import t from 'tap'
import usageRecords from '../../plugins/usage-records/usage-records.ts'
import { isCodingUsage, type UsageRecord } from '../../src/domain/usage-records.ts'
import { openStore } from '../../src/backends/store/store.ts'
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

t.test('usage records are published once they are stored, again after a failure, and removed after USAGE_DAYS', async (t) => {
  const store = await openStore(`sqlite:${t.testdir()}/tollgate.db`, { recordsUsage: true, publishesUsage: true })
  let now = T0
  await store.change(ID, plan(), now)
  for (const id of ['a', 'b', 'c']) {
    await store.change(ID, admit(id, 5), now)
    await store.change(ID, settle(id, 5), now++)
  }
  const published: UsageRecord[][] = []
  const publishUsage = async (records: UsageRecord[]) => {
    published.push(records)
    if (published.length === 1) throw new Error('no answer came')
  }
  const app = fastify()
  app.decorate('store', store)
  app.decorate('clock', () => now)
  app.decorate('broker', { publishUsage } as never)
  app.decorate('config', { USAGE_MS: DAY_MS } as never)
  app.register(Object.assign(async () => {}, { [Symbol.for('skip-override')]: true, [Symbol.for('fastify.display-name')]: 'ops', [Symbol.for('plugin-meta')]: { name: 'ops' } }))
  app.register(usageRecords)
  t.teardown(async () => {
    await app.close()
    await store.close()
  })
  await app.ready()
  await eventually('nothing is to be published', async () => ((await store.unpublishedUsage(10)).length === 0 ? true : null))
  t.same(published.map((records) => records.map(({ id }) => id)), [['a', 'b', 'c'], ['a', 'b', 'c']])
  t.ok(published.flat().every(isCodingUsage))
  now = T0 + DAY_MS + 2
  await eventually('the old ones are gone', async () => ((await store.usageRecords(ID, ALL, null, 10)).length === 1 ? true : null))
  t.same((await store.usageRecords(ID, ALL, null, 10)).map(({ id }) => id), ['c'])
})
