/** Two controller processes, as the chart runs them, over one API server and one MongoDB. Their lease lasts 15 s, which is not configurable. */
import { randomBytes } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { DEFAULT_ENGINES } from '../../src/backends/engines/engines-file.ts'
import { seeded } from '../contracts/store/acme.ts'
import { eventually } from '../flows/eventually.ts'
import { startProcess, type Process } from '../flows/program.ts'
import { openProxy, type Fate } from '../servers/kube/proxy.ts'
import { kubernetes } from '../servers/kubernetes.ts'
import { mongodb } from '../servers/mongodb.ts'
import { emptyDatabase } from '../backends/store/empty-store.ts'
import { folderFor } from '../temporary-folder.ts'
import { agree, coder, KEYS, leftovers, named } from './store-secret-agreement.ts'
import { openOperator, type Operator } from './operator.ts'

const metricsOf = async ({ opsUrl }: Process) => (await fetch(`${opsUrl}/metrics`)).text()
const leads = async (one: Process) => /^leader_election_master_status\{[^}]*\} 1$/m.test(await metricsOf(one))
/** Successful write requests: the process that comes second with the first Lease has changed nothing. */
const writes = async (one: Process) =>
  [...(await metricsOf(one)).matchAll(/^rest_client_requests_total\{([^}]*)\} (\d+)/gm)]
    .filter(([, labels = '']) => !labels.includes('method="GET"') && /code="2\d\d"/.test(labels))
    .reduce((sum, [, , count]) => sum + Number(count), 0)

async function openControllers(t: Test, kubeconfig: string, storeUrl: string): Promise<{ operator: Operator; start(kubeconfig?: string): Promise<Process> }> {
  const operator = await openOperator(t, kubeconfig, storeUrl)
  const folder = await folderFor(t)
  await writeFile(join(folder, 'engines.yaml'), DEFAULT_ENGINES)
  await writeFile(join(folder, 'sealing.key'), `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 })
  const env = { STORE_URL: storeUrl, SEALING_KEY_FILE: join(folder, 'sealing.key'), ENGINES: join(folder, 'engines.yaml') }
  return {
    operator,
    async start(through = kubeconfig) {
      const one = await startProcess({ folder, role: 'controller', env: { ...env, RESOURCES_URL: operator.url.replace(kubeconfig, through) } })
      t.teardown(() => one.kill())
      return one
    },
  }
}

/** Changes the keys one after the other until stopped; `after` resolves after `count` further changes. */
function openChanges(operator: Operator, random: () => number): { after(count: number): Promise<void>; revision(n: number): number; stop(): Promise<void> } {
  const revisions = Array.from({ length: KEYS }, () => 0)
  let changes = 0
  let isOver = false
  async function run(): Promise<void> {
    while (!isOver) {
      const n = Math.floor(random() * KEYS)
      if (random() < 0.5) revisions[n] = (revisions[n] ?? 0) + 1
      await operator.declare(named(n, { rotationRevision: revisions[n], state: random() < 0.3 ? 'Suspended' : 'Active' }))
      changes++
    }
  }
  const running = run()
  return {
    async after(count) {
      const until = changes + count
      await eventually(`${count} changes`, async () => (changes >= until ? true : null))
    },
    revision: (n) => revisions[n] ?? 0,
    async stop() {
      isOver = true
      await running
    },
  }
}

const kubeconfig = await kubernetes(t)
const server = kubeconfig === null ? null : await mongodb(t)
if (kubeconfig !== null && server !== null) {
  t.test('of two controller processes one leads; after it is killed under load the other takes over, and no key is minted twice', async (t) => {
    const { operator, start } = await openControllers(t, kubeconfig, (await emptyDatabase(t, server)).url)
    await operator.declare(coder(), ...Array.from({ length: KEYS }, (_, n) => named(n)))
    const processes = await Promise.all([start(), start()])
    await agree(operator)
    const leading = await Promise.all(processes.map(leads))
    t.same(leading.toSorted(), [false, true], 'exactly one leads')
    const [leader, follower] = leading[0] ? processes : processes.toReversed()
    if (!leader || !follower) throw new Error('there are two')
    t.equal(await writes(follower), 0)

    const changing = openChanges(operator, seeded(9))
    await changing.after(40)
    await eventually('the leader to work on changes', async () => ((await writes(leader)) > 3 * KEYS ? true : null))
    t.same([await leads(leader), await leads(follower), await writes(follower)], [true, false, 0])
    t.match(await leader.kill(), { signal: 'SIGKILL' })
    const killedAt = performance.now()
    await changing.after(40)
    await eventually('the other to lead', async () => ((await leads(follower)) ? true : null))
    t.comment(`took over after ${Math.round(performance.now() - killedAt)} ms`)
    await changing.after(40)
    await changing.stop()
    await agree(operator)

    const again = await start()
    t.same([await leads(follower), await leads(again)], [true, false], 'a restarted process does not lead')
    await operator.withdraw(operator.ref('ApiKey', 'k0'))
    await operator.declare(named(1, { rotationRevision: changing.revision(1), state: 'Revoked' }), named(KEYS))
    await eventually('the key to be gone', async () => ((await operator.object(operator.ref('ApiKey', 'k0'))) === null ? true : null))
    await agree(operator)
    t.same(await leftovers(operator), [])
    t.equal(await writes(again), 0)
    for (const one of [again, follower]) t.match(await one.stop(), { code: 0 })
  })

  t.test('a leader stopped for longer than its lease writes nothing of the work that it had begun', async (t) => {
    const { operator, start } = await openControllers(t, kubeconfig, (await emptyDatabase(t, server)).url)
    const proxy = await openProxy(t, operator.api)
    const [asked, goOn] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
    proxy.fate = async (method, path): Promise<Fate> => {
      if (method === 'POST' && path.endsWith('/secrets')) await (asked.resolve(), goOn.promise)
      return 'passes'
    }
    const ref = operator.ref('ApiKey', 'k0')
    await operator.declare(coder())
    const first = await start(proxy.kubeconfig)
    await eventually('it to lead', async () => ((await leads(first)) ? true : null))
    const second = await start()
    await operator.declare(named(0))
    await asked.promise
    process.kill(first.pid, 'SIGSTOP')
    // The server does the write, and its response waits for the stopped process.
    goOn.resolve()
    await operator.becomes(ref, { Ready: 'True Issued' })
    t.equal(await leads(second), true)
    await operator.declare(named(0, { state: 'Suspended' }))
    await agree(operator)
    // The process cannot reach the API server either.
    proxy.fate = () => 'cut'
    process.kill(first.pid, 'SIGCONT')
    await eventually('it to know', async () => ((await leads(first)) ? null : true))
    await eventually('its passes to end', async () => (/^controller_runtime_active_workers\{controller="apikey"\} 0$/m.test(await metricsOf(first)) ? true : null))
    await agree(operator)
    t.same((await operator.store.keyVersions((await operator.object(ref)).metadata.uid)).map(({ state }) => state), ['suspended'])
    t.equal(await leads(second), true)
  })
}
