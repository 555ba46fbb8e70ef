/** Crashes of the API server: no update is lost, and issued keys are served meanwhile. */
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
  t.test(`five kills of the API server under load, with further faults, lose no update and mint no key twice, over ${name}`, async (t) => {
    const store = name === 'SQLite' ? undefined : await mongodb(t)
    const server = store === null ? null : await ownKubernetes(t)
    if (store === null || !server) return
    const on = store === undefined ? {} : { storeUrl: (await emptyDatabase(t, store)).url }
    const { faults, ...report } = await strikeOperator(t, server, { kills: 5, random: seeded(5 + seed), tell: (line) => t.comment(line), ...on })
    t.comment(report)
    t.same(faults, [])
  })
}

t.test('while the API server is down, issued keys are served and the process is ready, also after the lease is lost', async (t) => {
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
  /** Sends the requests of clients and probes; resolves to the detail of the API server in /readyz, and whether this process is the leader. */
  async function probe(): Promise<{ detail: string; leads: boolean }> {
    const [answer, ready, metrics] = await Promise.all([chat(program, coding), fetch(`${program.opsUrl}/readyz`), fetch(`${program.opsUrl}/metrics`)])
    answers.add(answer.status).add(ready.status)
    const { checks } = (await ready.json()) as { checks: { name: string; detail: string }[] }
    return { detail: checks.find(({ name }) => name === 'resources')?.detail ?? '', leads: /^leader_election_master_status\{[^}]*\} 1$/m.test(await metrics.text()) }
  }
  t.match(await probe(), { detail: 'the API server is watched', leads: true })

  await server.killApiServer()
  await eventually('its loss to be noticed', async () => (/ECONNREFUSED/.test((await probe()).detail) ? true : null))
  t.equal((await chat(program, unused)).status, 200, 'a key that was not used before')
  const made = (await (await post(program, media, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64' })).json()) as Json
  await eventually('a picture', async () => (at((await get(program, media, `/api/v1/generations/${String(at(made, 'id'))}`)).body, 'status') === 'completed' ? true : null))
  await eventually('the lease to be lost', async () => ((await probe()).leads ? null : true))
  for (let n = 0; n < 20; n++) t.match(await probe(), { leads: false })
  t.same([...answers], [200], 'no client noticed')

  await server.startApiServer()
  await eventually('it to be watched again', async () => ((await probe()).detail === 'the API server is watched' ? true : null))
  await eventually('the lease to be taken again', async () => ((await probe()).leads ? true : null))
  t.same([...answers], [200])
  await cluster.declare(coder({ state: 'Suspended' }))
  await eventually('the plan to be refused', async () => ((await chat(program, coding)).status === 403 ? true : null))
  await cluster.declare(coder())
  await eventually('the plan to be active', async () => ((await chat(program, coding)).status === 200 ? true : null))
  t.match(await program.stop(), { code: 0 })
})
