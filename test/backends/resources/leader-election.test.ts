/** Leader election over an in-memory Lease whose server fails, is slow or hangs for one of two processes. */
import { createServer } from 'node:http'
import { json } from 'node:stream/consumers'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ApiResponse, Client, Method } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openKubernetes } from '../../../src/backends/resources/kubernetes/kubernetes.ts'
import { openLeader, type Leader, type LeaderOptions } from '../../../src/backends/resources/kubernetes/leader-election.ts'
import { eventually } from '../../flows/eventually.ts'
import { listening } from '../../fakes/listening.ts'

/** A clock that advances only when the test moves it. */
function openTime() {
  const timers = new Set<{ at: number; fire: () => void }>()
  let nowMs = 0
  return {
    now: () => nowMs,
    async pause(ms: number, signal: AbortSignal) {
      const { promise, resolve, reject } = Promise.withResolvers<void>()
      const timer = { at: nowMs + ms, fire: resolve }
      timers.add(timer)
      signal.addEventListener('abort', () => reject(signal.reason))
      if (signal.aborted) reject(signal.reason)
      await promise.finally(() => timers.delete(timer))
    },
    /** As for a stopped process: no timer fires. */
    skip: (ms: number) => void (nowMs += ms),
    /** Fires the timers that are due until then, each at its time, and lets their continuations run. */
    async forward(ms: number) {
      const untilMs = nowMs + ms
      for (;;) {
        await turn()
        const next = [...timers].sort((a, b) => a.at - b.at)[0]
        if (!next || next.at > untilMs) break
        nowMs = Math.max(nowMs, next.at)
        timers.delete(next)
        next.fire()
      }
      nowMs = untilMs
    },
  }
}

const TEN_SECONDS = { durationMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2_000, random: () => 0.5 }

/** The fate of a request; `sinceMs` is the time since the fault began. */
type Fault = (method: string, sinceMs: number) => 'answers' | 'fails' | 'hangs' | { afterMs: number }

const FAULTS: Record<string, Fault> = {
  'hangs': () => 'hangs',
  'hangs on writes': (method) => (method === 'GET' ? 'answers' : 'hangs'),
  'fails': () => 'fails',
  // The last try begins shortly before the deadline, and each of its requests takes as long as its time limit allows.
  'fails, responds late and hangs': (method, sinceMs) => (sinceMs < 8_000 ? 'fails' : method === 'GET' ? { afterMs: 4_000 } : 'hangs'),
}

/** Clients of one server with one Lease. */
function openServer(time = openTime()): (fateOf: (method: string) => ReturnType<Fault>) => Client {
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
      if (typeof fate === 'object') await time.pause(fate.afterMs, new AbortController().signal)
      return answer(method, body)
    }
    return { request, counts: () => [] } as unknown as Client
  }
}

type Times = Pick<LeaderOptions, 'durationMs' | 'renewDeadlineMs' | 'retryMs' | 'random' | 'time'>

function openCandidate(t: Test, identity: string, client: Client, changes: string[], times: Times): Leader {
  const leader = openLeader({ client, namespace: 'gate', name: 'tollgate', identity, changed: (is) => changes.push(`${identity} ${is ? 'leads' : 'stops'}`), log: { info() {}, warn() {} }, ...times })
  t.teardown(leader.resign)
  return leader
}

for (const [what, fault] of Object.entries(FAULTS)) {
  t.test(`a leader whose server ${what} stops leading before another may lead`, async (t) => {
    const time = openTime()
    const clientOf = openServer(time)
    const changes: string[] = []
    let since = Infinity
    const first = openCandidate(t, 'first', clientOf((method) => (since === Infinity ? 'answers' : fault(method, time.now() - since))), changes, { ...TEN_SECONDS, time })
    await time.forward(0)
    const second = openCandidate(t, 'second', clientOf(() => 'answers'), changes, { ...TEN_SECONDS, time })
    since = time.now()
    await time.forward(60_000)
    t.same(changes, ['first leads', 'first stops', 'second leads'])
    const resigned = Promise.all([first.resign(), second.resign()])
    await time.forward(60_000)
    await resigned
  })
}

t.test('a process that resigns while it acquires the lease releases it', async (t) => {
  // Too long to expire in a test.
  const lasting = { durationMs: 600_000, renewDeadlineMs: 400_000, retryMs: 20 }
  for (const last of ['GET', 'POST']) {
    const clientOf = openServer()
    const requested = Promise.withResolvers<void>()
    const changes: string[] = []
    const first = openCandidate(t, 'first', clientOf((method) => (method === last && requested.resolve(), 'answers')), changes, lasting)
    await requested.promise
    await first.resign()
    t.same(changes, [], last)
    const second = openCandidate(t, 'second', clientOf(() => 'answers'), changes, lasting)
    await eventually('the second to lead', async () => (second.isLeading() ? true : null))
    await second.resign()
  }
})

t.test('a process stopped beyond its renew deadline is not the leader from then on, and `changed` is called before the next try', async (t) => {
  const time = openTime()
  const changes: string[] = []
  const leader = openCandidate(t, 'first', openServer()(() => 'answers'), changes, { ...TEN_SECONDS, time })
  await time.forward(5_000)
  t.ok(leader.isLeading())
  time.skip(8_999)
  t.ok(leader.isLeading(), 'it renewed a second ago')
  time.skip(1)
  t.notOk(leader.isLeading(), 'although no timer fired')
  t.same(changes, ['first leads'])
  await time.forward(0)
  t.same(changes, ['first leads', 'first stops', 'first leads'])
  t.ok(leader.isLeading())
})

t.test('a renewal whose response is read after its deadline does not count', async (t) => {
  const time = openTime()
  const changes: string[] = []
  const server = openServer()(() => 'answers')
  const written = Promise.withResolvers<void>()
  const slow = {
    async request(method: Method, path: string, options?: object) {
      const response = await server.request(method, path, options)
      if (method === 'PUT') await written.promise
      return response
    },
  }
  const leader = openCandidate(t, 'first', slow as Client, changes, { ...TEN_SECONDS, time })
  await time.forward(2_000)
  t.ok(leader.isLeading())
  time.skip(60_000)
  written.resolve()
  await turn()
  t.notOk(leader.isLeading())
  t.same(changes, ['first leads', 'first stops'])
  await time.forward(2_200)
  t.same(changes, ['first leads', 'first stops', 'first leads'])
})

/** A follower reads the lease at its retry interval, and at the moment when it expires, whatever the timestamps in it say. */
const EXPIRIES = [
  { leaseDurationSeconds: 15, renewTime: '2099-01-01T00:00:00.000000Z', random: 0, tries: [0, 2000, 4000, 6000, 8000, 10000, 12000, 14000, 15000] },
  { leaseDurationSeconds: 15, renewTime: '2001-01-01T00:00:00.000000Z', random: 0.5, tries: [0, 2200, 4400, 6600, 8800, 11000, 13200, 15000] },
  { leaseDurationSeconds: 1, renewTime: '2099-01-01T00:00:00.000000Z', random: 0.5, tries: [0, 1000] },
]

for (const { leaseDurationSeconds, renewTime, random, tries } of EXPIRIES) {
  t.test(`a follower takes a lease of ${leaseDurationSeconds} s at the moment when it expires, with random ${random}`, async (t) => {
    const time = openTime()
    const server = openServer()(() => 'answers')
    await server.request('POST', '', { body: { spec: { holderIdentity: 'killed', leaseDurationSeconds, renewTime, acquireTime: renewTime, leaseTransitions: 3 } } })
    const tried: number[] = []
    const client = {
      request(method: Method, path: string, options?: object) {
        if (method === 'GET') tried.push(Math.round(time.now()))
        return server.request(method, path, options)
      },
    }
    const leader = openCandidate(t, 'follower', client as Client, [], { ...TEN_SECONDS, random: () => random, time })
    await time.forward(leaseDurationSeconds * 1_000 - 1)
    t.notOk(leader.isLeading())
    await time.forward(1)
    t.ok(leader.isLeading())
    t.same(tried, tries)
  })
}

t.test('a follower that fails to take an expired lease retries at its interval', async (t) => {
  const time = openTime()
  const server = openServer()
  await server(() => 'answers').request('POST', '', { body: { spec: { holderIdentity: 'killed', leaseDurationSeconds: 3 } } })
  const tried: number[] = []
  const client = server((method) => {
    if (method === 'GET') tried.push(Math.round(time.now()))
    return method === 'GET' ? 'answers' : 'fails'
  })
  openCandidate(t, 'follower', client, [], { ...TEN_SECONDS, time })
  await time.forward(8_000)
  t.same(tried, [0, 2200, 3000, 5200, 7400])
})

t.test('the lease is renewed while the maximum of other requests hang', async (t) => {
  const lease = openServer()(() => 'answers')
  let hanging = 0
  let renewals = 0
  const api = createServer(async (request, response) => {
    const { method = '', url = '' } = request
    if (!url.includes('/leases')) return void hanging++
    const body = method === 'GET' ? {} : await json(request)
    const { status, body: object } = await lease.request(method as Method, url, { body })
    if (method === 'PUT') renewals++
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(object))
  })
  const cluster = { 'server': `http://127.0.0.1:${await listening(t, api)}`, 'insecure-skip-tls-verify': true }
  const kubeconfig = { 'current-context': 'c', 'contexts': [{ name: 'c', context: { cluster: 'c', user: 'u' } }], 'clusters': [{ name: 'c', cluster }], 'users': [{ name: 'u', user: {} }] }
  const folder = t.testdir({ config: JSON.stringify(kubeconfig) })
  const log = { info() {}, warn() {}, error() {} }
  const resources = await openKubernetes({ url: `kubernetes:?kubeconfig=${folder}/config`, dataDir: '', environment: {}, declarations: null as never, log }, { lease: { ...TEN_SECONDS, retryMs: 20 } })
  const writes = Array.from({ length: 40 }, (_, n) => resources.issueKey({ namespace: 'acme', name: `k${n}`, spec: { planRef: { name: 'coder' } } }).catch(() => 'away'))
  t.teardown(async () => {
    await resources.close()
    await Promise.all(writes)
  })
  await eventually('the maximum of requests in flight', async () => (hanging === 32 ? true : null))
  const changes: boolean[] = []
  const timed = new Set<string>()
  resources.observe?.((method) => timed.add(method))
  await resources.lead((isLeading) => changes.push(isLeading))
  await eventually('the lease to be renewed', async () => (renewals > 2 ? true : null))
  t.same(changes, [true])
  t.equal(hanging, 32, 'and all of them still hang')
  const counted = resources.stats()?.requests ?? []
  t.same(counted.map(({ method, code }) => `${method} ${code}`), ['GET 404', 'POST 201', 'GET 200', 'PUT 200'], 'its requests are counted')
  t.same([...timed], ['GET', 'POST', 'PUT'], 'and timed')
})
