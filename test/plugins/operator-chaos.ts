/**
 * Chaos test of the controller: two controllers under constant changes, while their API server is killed repeatedly and a further fault is injected. Checks that
 * specs, status, Secrets and store agree afterwards. `npm run chaos -- --side kubernetes --kills 100`.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { compact } from '../backends/resources/compaction.ts'
import type { ControlPlane } from '../servers/kube/control-plane.ts'
import { openProxy, type Proxy } from '../servers/kube/proxy.ts'
import { ownKubernetes } from '../servers/kubernetes.ts'
import { agree, coder, KEYS, leftovers, named } from './store-secret-agreement.ts'
import { openAway } from './unavailable-store.ts'
import { openOperator, type Operator } from './operator.ts'

export type OperatorChaos = {
  /** Kills of the API server. */
  kills: number
  /** Further faults, and how often each was injected. */
  struck: Record<string, number>
  /** Changes that the API server accepted. */
  changes: number
  /** Differences from the expected state, as sentences. */
  faults: string[]
  seconds: number
}

/** `storeUrl` as for `openOperator`. */
type Options = { kills: number; /** After this time no further kill follows. */ lastsMs?: number; random: () => number; tell?: (line: string) => void; storeUrl?: string }

/** Long enough to be renewed on a loaded machine. */
export const LEASE = { durationMs: 5_000, renewDeadlineMs: 3_500, retryMs: 300 }
/** Longer than any back-off after a failure. */
const MAX_WAIT_MS = 90_000
const MINUTE_MS = 60_000
/** Time limit of a run as a command. */
const MAX_RUN_MS = 4 * 3_600_000
/** At this kill the store is unavailable for a minute. */
const LONG_OUTAGE_AT_KILL = 50

/** Kills the API server `kills` times, with faults that `random` (0 up to 1) draws. The test owns the server. */
export async function strikeOperator(t: Test, server: ControlPlane, { kills, lastsMs = Infinity, random, tell = () => {}, storeUrl }: Options): Promise<OperatorChaos> {
  const sinceMs = performance.now()
  const operator = await openOperator(t, server.kubeconfig, storeUrl)
  const away = openAway(operator.store, 'store')
  const proxies = [await openProxy(t, operator.api), await openProxy(t, operator.api)]
  await operator.declare(coder(), ...Array.from({ length: KEYS }, (_, n) => named(n)))
  for (const { kubeconfig } of proxies) await operator.start({ lease: LEASE }, kubeconfig, { store: away.backend })
  await agree(operator)
  const load = openLoad(operator, random)
  const changing = load.run()
  const struck: Record<string, number> = {}
  const injections = faultsOf(proxies, away, random)
  try {
    for (let kill = 1; kill <= kills && performance.now() - sinceMs < lastsMs; kill++) {
      const [what, strike] = injections[Math.floor(random() * injections.length)] as Injection
      struck[what] = (struck[what] ?? 0) + 1
      const lasts = kill === LONG_OUTAGE_AT_KILL ? absent(away, MINUTE_MS) : strike()
      await pause(random() * 500)
      await server.killApiServer()
      if (what === 'versions forgotten') await compact(server.etcd)
      await server.startApiServer()
      await lasts
      tell(`kill ${kill}, ${what}: ${load.changes()} changes`)
    }
  } finally {
    load.stop()
    await changing
  }
  const faults = await agreement(operator)
  return { kills: Object.values(struck).reduce((sum, count) => sum + count, 0), struck, changes: load.changes(), faults: [...load.faults, ...faults, ...(await leftovers(operator))], seconds: Math.round((performance.now() - sinceMs) / 1000) }
}

/** As `strikeOperator`, for a command, on a control plane of its own. Rejects if that is not installed. */
export async function strikeKubernetes(options: Options): Promise<OperatorChaos> {
  const { default: tap } = await import('tap')
  let report: OperatorChaos | null = null
  tap.setTimeout(MAX_RUN_MS)
  await tap.test('the operator under kills of its API server', { timeout: MAX_RUN_MS }, async (t) => {
    const server = await ownKubernetes(t)
    if (server) report = await strikeOperator(t, server, options)
    t.pass()
  })
  if (!report) throw new Error('the API server is not installed, npm run servers kubernetes has it')
  return report
}

type Injection = [what: string, strike: () => Promise<void>]

/** Faults injected while the server is down; each resolves when it is over. */
function faultsOf(proxies: Proxy[], away: { isAway: boolean }, random: () => number): Injection[] {
  const bad = async (which: Proxy[], fate: Proxy['fate'], ms: number, tells: Proxy['tells'] = () => true) => {
    for (const proxy of which) Object.assign(proxy, { fate, tells })
    await pause(ms)
    for (const proxy of which) Object.assign(proxy, { fate: () => 'passes', tells: () => true })
  }
  return [
    ['nothing else', async () => {}],
    // The compaction follows with the next start of the server.
    ['versions forgotten', async () => {}],
    ['connections cut at random', () => bad(proxies, () => (random() < 0.3 ? 'cut' : 'passes'), 3_000)],
    ['answers lost at random', () => bad(proxies, () => (random() < 0.3 ? 'unanswered' : 'passes'), 3_000)],
    ['watches that end within an event', () => bad(proxies, () => 'passes', 3_000, (event) => random() > 0.3 || { bytes: Math.floor(random() * event.length), isBroken: random() < 0.5 })],
    ['conflicts', () => bad(proxies, (method) => (method !== 'GET' && random() < 0.5 ? { status: 409, reason: 'Conflict' } : 'passes'), 3_000)],
    ['lists that fail', () => bad(proxies, (method, path) => (method === 'GET' && path.includes('limit=') ? { status: 500, reason: 'InternalError' } : 'passes'), 2_000)],
    ['one controller cut off', () => bad([proxies[Math.floor(random() * proxies.length)] as Proxy], () => 'cut', 2 * LEASE.durationMs)],
    ['no store', () => absent(away, random() * 3_000)],
  ]
}

async function absent(away: { isAway: boolean }, ms: number): Promise<void> {
  away.isAway = true
  await pause(ms)
  away.isAway = false
}

type Load = { run(): Promise<void>; stop(): void; changes(): number; /** Changes that were not accepted for too long. */ faults: string[] }

/** One change after another; each is retried until the server has accepted it. */
function openLoad(operator: Operator, random: () => number): Load {
  const revisions = Array.from({ length: KEYS }, () => 0)
  const faults: string[] = []
  let changes = 0
  let isOver = false

  async function retrying(work: () => Promise<unknown>): Promise<void> {
    for (const sinceMs = performance.now(); ; ) {
      const failure = await work().then(() => null, (error: Error) => error.message)
      if (failure === null) break
      if (performance.now() - sinceMs > MAX_WAIT_MS) {
        faults.push(`a change is not accepted: ${failure}`)
        throw new Error(failure)
      }
      await pause(50)
    }
    changes++
  }

  async function renew(n: number): Promise<void> {
    const ref = operator.ref('ApiKey', `k${n}`)
    let uid = ''
    await retrying(async () => (uid = (await operator.object(ref)).metadata.uid))
    const isAnother = async () => (await operator.object(ref))?.metadata.uid !== uid
    await retrying(async () => (await isAnother()) || operator.withdraw(ref))
    revisions[n] = 0
    // The controller must remove its finalizer first.
    await retrying(async () => {
      if (!(await isAnother())) throw new Error(`${JSON.stringify((await operator.object(ref))?.metadata)} is still there`)
      await operator.declare(named(n))
    })
  }

  async function change(): Promise<void> {
    const n = Math.floor(random() * KEYS)
    const what = random()
    if (what < 0.05) return renew(n)
    if (what < 0.4) revisions[n] = (revisions[n] ?? 0) + 1
    await retrying(() => operator.declare(named(n, { rotationRevision: revisions[n], state: random() < 0.3 ? 'Suspended' : 'Active' })))
  }

  return {
    async run() {
      while (!isOver) {
        await change().catch(() => {})
        await pause(20)
      }
    },
    stop() {
      isOver = true
    },
    changes: () => changes,
    faults,
  }
}

/** The differences that remain after the longest back-off. */
async function agreement(operator: Operator): Promise<string[]> {
  for (const sinceMs = performance.now(); ; ) {
    const fault = await agree(operator).then(() => null, (error: Error) => error.message)
    if (fault === null) return []
    if (performance.now() - sinceMs > MAX_WAIT_MS) return [fault]
  }
}
