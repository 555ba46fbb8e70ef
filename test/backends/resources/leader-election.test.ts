/** Leader election over a Lease of memory whose server fails, is slow and hangs for one of two. */
import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { setImmediate as turn, setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ApiResponse, Client, Method } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openKubernetes } from '../../../src/backends/resources/kubernetes/kubernetes.ts'
import { openLeader, type Leader, type LeaderOptions } from '../../../src/backends/resources/kubernetes/leader-election.ts'
import { eventually } from '../../flows/eventually.ts'

const TIMES = { durationMs: 1_000, renewDeadlineMs: 700, retryMs: 20 }

/** What becomes of a request; `sinceMs` is the time since the trouble began. */
type Trouble = (method: string, sinceMs: number) => 'answers' | 'fails' | 'hangs' | { afterMs: number }

const TROUBLES: Record<string, Trouble> = {
  'hangs': () => 'hangs',
  'hangs at writes': (method) => (method === 'GET' ? 'answers' : 'hangs'),
  'fails': () => 'fails',
  // The last try begins shortly before the deadline, and each of its requests takes as long as it may.
  'fails, answers late and hangs': (method, sinceMs) => (sinceMs < 560 ? 'fails' : method === 'GET' ? { afterMs: 300 } : 'hangs'),
}

/** Clients of one server that keeps one Lease. */
function openServer(): (fateOf: (method: string) => ReturnType<Trouble>) => Client {
  let lease: { metadata: { resourceVersion: string } } | null = null
  let version = 0
  function answer(method: string, body: { metadata?: { resourceVersion?: string } }): ApiResponse<object> {
    if (method === 'GET') return { status: lease ? 200 : 404, body: structuredClone(lease ?? {}) }
    if (body.metadata?.resourceVersion !== lease?.metadata.resourceVersion) return { status: 409, body: {} }
    lease = { ...structuredClone(body), metadata: { ...body.metadata, resourceVersion: String(++version) } }
    return { status: method === 'POST' ? 201 : 200, body: structuredClone(lease) }
  }
  return (fateOf) => {
    const request = async (method: string, _path: string, { body = {} }: { body?: object } = {}) => {
      const fate = fateOf(method)
      if (fate === 'hangs') return new Promise<never>(() => {})
      if (fate === 'fails') throw new Error('away')
      if (typeof fate === 'object') await pause(fate.afterMs)
      return answer(method, body)
    }
    return { request, counts: () => [] } as unknown as Client
  }
}

type Times = Pick<LeaderOptions, 'durationMs' | 'renewDeadlineMs' | 'retryMs' | 'random' | 'time'>

function enter(t: Test, identity: string, client: Client, told: string[], times: Times): Leader {
  const leader = openLeader({ client, namespace: 'gate', name: 'tollgate', identity, changed: (is) => told.push(`${identity} ${is ? 'leads' : 'stops'}`), log: { info() {}, warn() {} }, ...times })
  t.teardown(leader.resign)
  return leader
}

for (const [what, trouble] of Object.entries(TROUBLES)) {
  t.test(`a leader whose server ${what} stops before another may lead`, async (t) => {
    const clientOf = openServer()
    const told: string[] = []
    let since = Infinity
    const first = enter(t, 'first', clientOf((method) => (since === Infinity ? 'answers' : trouble(method, performance.now() - since))), told, TIMES)
    await eventually('the first to lead', async () => (first.isLeading() ? true : null))
    const second = enter(t, 'second', clientOf(() => 'answers'), told, TIMES)
    since = performance.now()
    await eventually('the second to lead', async () => (second.isLeading() ? true : null))
    t.same(told, ['first leads', 'first stops', 'second leads'])
    await Promise.all([first.resign(), second.resign()])
  })
}

t.test('whoever resigns while it takes the lease gives it up all the same', async (t) => {
  // Nobody gets it by waiting.
  const lasting = { durationMs: 600_000, renewDeadlineMs: 400_000, retryMs: 20 }
  for (const last of ['GET', 'POST']) {
    const clientOf = openServer()
    const asked = Promise.withResolvers<void>()
    const told: string[] = []
    const first = enter(t, 'first', clientOf((method) => (method === last && asked.resolve(), 'answers')), told, lasting)
    await asked.promise
    await first.resign()
    t.same(told, [], last)
    const second = enter(t, 'second', clientOf(() => 'answers'), told, lasting)
    await eventually('the second to lead', async () => (second.isLeading() ? true : null))
    await second.resign()
  }
})

/** A clock that stands until it is moved. */
function openTime() {
  const alarms = new Set<{ at: number; ring: () => void }>()
  let nowMs = 0
  return {
    now: () => nowMs,
    async pause(ms: number, signal: AbortSignal) {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      const alarm = { at: nowMs + ms, ring: resolve }
      alarms.add(alarm)
      signal.addEventListener('abort', () => reject(signal.reason))
      if (signal.aborted) reject(signal.reason)
      await promise.finally(() => alarms.delete(alarm))
    },
    /** As for a process that stands still: no alarm rings. */
    skip: (ms: number) => void (nowMs += ms),
    /** Lets the alarms ring that are due until then, each at its time, and what they woke come to rest. */
    async forward(ms: number) {
      const untilMs = nowMs + ms
      for (;;) {
        await turn()
        const next = [...alarms].sort((a, b) => a.at - b.at)[0]
        if (!next || next.at > untilMs) break
        nowMs = Math.max(nowMs, next.at)
        alarms.delete(next)
        next.ring()
      }
      nowMs = untilMs
    },
  }
}

const TEN_SECONDS = { durationMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2_000, random: () => 0.5 }

t.test('whoever stood still until its time was over does not lead from that moment on, and is told so before it tries again', async (t) => {
  const time = openTime()
  const told: string[] = []
  const leader = enter(t, 'first', openServer()(() => 'answers'), told, { ...TEN_SECONDS, time })
  await time.forward(5_000)
  t.ok(leader.isLeading())
  time.skip(8_999)
  t.ok(leader.isLeading(), 'it renewed a second ago')
  time.skip(1)
  t.notOk(leader.isLeading(), 'although no timer rang')
  t.same(told, ['first leads'])
  await time.forward(0)
  t.same(told, ['first leads', 'first stops', 'first leads'])
  t.ok(leader.isLeading())
})

t.test('a renewal whose answer is read when its time is over makes nobody lead', async (t) => {
  const time = openTime()
  const told: string[] = []
  const server = openServer()(() => 'answers')
  const written = Promise.withResolvers<void>()
  const slow = {
    async request(method: Method, path: string, options?: object) {
      const answer = await server.request(method, path, options)
      if (method === 'PUT') await written.promise
      return answer
    },
  }
  const leader = enter(t, 'first', slow as Client, told, { ...TEN_SECONDS, time })
  await time.forward(2_000)
  t.ok(leader.isLeading())
  time.skip(60_000)
  written.resolve()
  await turn()
  t.notOk(leader.isLeading())
  t.same(told, ['first leads', 'first stops'])
  await time.forward(2_200)
  t.same(told, ['first leads', 'first stops', 'first leads'])
})

/** Who holds the lease says for how long; a follower looks at it by its own rhythm until then. */
const ENDS = [
  { leaseDurationSeconds: 15, random: 0, tries: [0, 2000, 4000, 6000, 8000, 10000, 12000, 14000, 15000] },
  { leaseDurationSeconds: 15, random: 0.5, tries: [0, 2200, 4400, 6600, 8800, 11000, 13200, 15000] },
  { leaseDurationSeconds: 1, random: 0.5, tries: [0, 1000] },
]

for (const { leaseDurationSeconds, random, tries } of ENDS) {
  t.test(`a follower takes a lease of ${leaseDurationSeconds} s in the moment when it is over, by chance ${random}`, async (t) => {
    const time = openTime()
    const server = openServer()(() => 'answers')
    await server.request('POST', '', { body: { spec: { holderIdentity: 'killed', leaseDurationSeconds } } })
    const tried: number[] = []
    const client = {
      request(method: Method, path: string, options?: object) {
        if (method === 'GET') tried.push(Math.round(time.now()))
        return server.request(method, path, options)
      },
    }
    const leader = enter(t, 'follower', client as Client, [], { ...TEN_SECONDS, random: () => random, time })
    await time.forward(leaseDurationSeconds * 1_000 - 1)
    t.notOk(leader.isLeading())
    await time.forward(1)
    t.ok(leader.isLeading())
    t.same(tried, tries)
  })
}

t.test('a follower that cannot take the lease that is over goes on by its own rhythm', async (t) => {
  const time = openTime()
  const server = openServer()
  await server(() => 'answers').request('POST', '', { body: { spec: { holderIdentity: 'killed', leaseDurationSeconds: 3 } } })
  const tried: number[] = []
  const client = server((method) => {
    if (method === 'GET') tried.push(Math.round(time.now()))
    return method === 'GET' ? 'answers' : 'fails'
  })
  enter(t, 'follower', client, [], { ...TEN_SECONDS, time })
  await time.forward(8_000)
  t.same(tried, [0, 2200, 3000, 5200, 7400])
})

t.test('the lease is renewed while as many other requests hang as may be in flight', async (t) => {
  const lease = openServer()(() => 'answers')
  let hanging = 0
  let renewals = 0
  const api = createServer(async (request, response) => {
    const { method = '', url = '' } = request
    if (!url.includes('/leases')) return void hanging++
    const body = method === 'GET' ? {} : await json(request)
    const answer = await lease.request(method as Method, url, { body })
    if (method === 'PUT') renewals++
    response.writeHead(answer.status, { 'content-type': 'application/json' }).end(JSON.stringify(answer.body))
  })
  await once(api.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => {
    api.closeAllConnections()
    api.close()
  })
  const cluster = { 'server': `http://127.0.0.1:${(api.address() as AddressInfo).port}`, 'insecure-skip-tls-verify': true }
  const kubeconfig = { 'current-context': 'c', 'contexts': [{ name: 'c', context: { cluster: 'c', user: 'u' } }], 'clusters': [{ name: 'c', cluster }], 'users': [{ name: 'u', user: {} }] }
  const folder = t.testdir({ config: JSON.stringify(kubeconfig) })
  const log = { info() {}, warn() {}, error() {} }
  const resources = await openKubernetes({ url: `kubernetes:?kubeconfig=${folder}/config`, dataDir: '', environment: {}, declarations: null as never, log }, { lease: { ...TEN_SECONDS, retryMs: 20 } })
  const writes = Array.from({ length: 40 }, (_, n) => resources.issueKey({ namespace: 'acme', name: `k${n}`, spec: { planRef: { name: 'coder' } } }).catch(() => 'away'))
  t.teardown(async () => {
    await resources.close()
    await Promise.all(writes)
  })
  await eventually('as many requests as may be in flight', async () => (hanging === 32 ? true : null))
  const told: boolean[] = []
  const timed = new Set<string>()
  resources.observe?.((method) => timed.add(method))
  await resources.lead((isLeading) => told.push(isLeading))
  await eventually('the lease to be renewed', async () => (renewals > 2 ? true : null))
  t.same(told, [true])
  t.equal(hanging, 32, 'and all of them still hang')
  const counted = resources.stats()?.requests ?? []
  t.same(counted.map(({ method, code }) => `${method} ${code}`), ['GET 404', 'POST 201', 'GET 200', 'PUT 200'], 'its requests are counted with the others')
  t.same([...timed], ['GET', 'POST', 'PUT'], 'and timed')
})
