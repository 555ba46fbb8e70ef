import t from 'tap'
import { seeded } from '../contracts/store/acme.ts'
import { at, chat, get, post, type Json } from '../flows/calls.ts'
import { eventually } from '../flows/eventually.ts'
import { startProcess } from '../flows/program.ts'
import { openCluster } from '../backends/resources/cluster.ts'
import { apiKey, codingPlan, mediaPlan } from '../backends/resources/manifests.ts'
import { ownKubernetes } from '../servers/kubernetes.ts'
import { mongodb } from '../servers/mongodb.ts'
import { emptyDatabase } from '../backends/store/empty-store.ts'
import { strikeOperator } from './operator-chaos.ts'

for (const [seed, name] of ['SQLite', "MongoDB's protocol"].entries()) {
  t.test(`an API server that is killed five times under change, and whatever breaks beside it, loses no update and mints nothing twice, over ${name}`, async (t) => {
    const store = name === 'SQLite' ? undefined : await mongodb(t)
    const server = store === null ? null : await ownKubernetes(t)
    if (store === null || !server) return
    const on = store === undefined ? {} : { storeUrl: (await emptyDatabase(t, store)).url }
    const { faults, ...report } = await strikeOperator(t, server, { kills: 5, random: seeded(5 + seed), tell: (line) => t.comment(line), ...on })
    t.comment(report)
    t.same(faults, [])
  })
}

t.test('while the API server is away, issued keys are served and the process is ready: when it is noticed, when the lease is lost, and until it is back', async (t) => {
  const server = await ownKubernetes(t)
  if (!server) return
  const cluster = await openCluster(t, server.kubeconfig)
  const windows = { sessionWindow: { tokens: 10_000_000 }, weeklyWindow: { tokens: 10_000_000 } }
  const coder = (spec: Record<string, unknown> = {}) => codingPlan('coder', { requestsPerMinute: 1_000_000, ...spec }, windows)
  const keys = [apiKey('coding', 'coder', { secretName: 'coding' }), apiKey('unused', 'coder', { secretName: 'unused' }), apiKey('media', 'studio', { secretName: 'media' })]
  await cluster.declare(coder(), mediaPlan('studio'), ...keys)
  const program = await startProcess({ folder: t.testdir({}), env: { RESOURCES_URL: cluster.url } })
  t.teardown(() => program.kill())
  const keyOf = (name: string) => eventually(`the Secret ${name}`, async () => (await cluster.secretEntries(cluster.namespace('acme'), name))?.['api-key'] ?? null)
  const [coding, unused, media] = [await keyOf('coding'), await keyOf('unused'), await keyOf('media')]
  await eventually('the first answer', async () => ((await chat(program, coding)).status === 200 ? true : null))
  const answers = new Set<number>()
  /** Asks as clients and probes do; resolves to what /readyz says of the API server, and whether this process leads. */
  async function ask(): Promise<{ detail: string; leads: boolean }> {
    const [answer, ready, metrics] = await Promise.all([chat(program, coding), fetch(`${program.opsUrl}/readyz`), fetch(`${program.opsUrl}/metrics`)])
    answers.add(answer.status).add(ready.status)
    const { checks } = (await ready.json()) as { checks: { name: string; detail: string }[] }
    return { detail: checks.find(({ name }) => name === 'resources')?.detail ?? '', leads: /^leader_election_master_status\{[^}]*\} 1$/m.test(await metrics.text()) }
  }
  t.match(await ask(), { detail: 'the API server is followed', leads: true })

  await server.killApiServer()
  await eventually('its loss to be noticed', async () => (/ECONNREFUSED/.test((await ask()).detail) ? true : null))
  t.equal((await chat(program, unused)).status, 200, 'a key that nobody had used before')
  const made = (await (await post(program, media, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64' })).json()) as Json
  await eventually('a picture', async () => (at((await get(program, media, `/api/v1/generations/${String(at(made, 'id'))}`)).body, 'status') === 'completed' ? true : null))
  await eventually('the lease to be lost', async () => ((await ask()).leads ? null : true))
  for (let n = 0; n < 20; n++) t.match(await ask(), { leads: false })
  t.same([...answers], [200], 'nobody was told of it')

  await server.startApiServer()
  await eventually('it to be followed again', async () => ((await ask()).detail === 'the API server is followed' ? true : null))
  await eventually('the lease to be taken again', async () => ((await ask()).leads ? true : null))
  t.same([...answers], [200])
  await cluster.declare(coder({ state: 'Suspended' }))
  await eventually('the plan to be refused', async () => ((await chat(program, coding)).status === 403 ? true : null))
  await cluster.declare(coder())
  await eventually('the plan to serve', async () => ((await chat(program, coding)).status === 200 ? true : null))
  t.match(await program.stop(), { code: 0 })
})
