/** Leader election over a Lease of memory whose server fails, is slow and hangs for one of two. */
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { Answer, Client } from '../../src/resources/kubernetes/client.ts'
import { openLeader, type Leader } from '../../src/resources/kubernetes/leader.ts'
import { eventually } from '../flows/eventually.ts'

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
  function answer(method: string, body: { metadata?: { resourceVersion?: string } }): Answer<object> {
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

type Times = { durationMs: number; renewDeadlineMs: number; retryMs: number }

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
