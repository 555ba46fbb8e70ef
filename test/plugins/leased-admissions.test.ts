/** Coding requests that the lease of a gateway admits: the real routes, metering and store, beside another process that changes the plan before the admissions are written. */
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openStore, type Store } from '../../src/backends/store/store.ts'
import type { Subscription } from '../../src/domain/subscription/subscription.ts'
import { chatStream } from '../fakes/upstream-wire.ts'
import { answers, codingRoutes } from './coding-routes.ts'
import { bearer, CODING, openGateway, START } from './gateway.ts'

/** Of each answer. */
const TOKENS = 25
const SUSPENDED = { status: 403, body: /"code":"plan_inactive"/ }

/** After a first request, which the store admits and which takes the lease. */
async function setUp(t: Test) {
  const { upstream, upstreams, routes } = await codingRoutes(t, answers)
  t.teardown(async () => {
    await upstreams.close()
    await upstream.close()
  })
  // What a lease has admitted is written when the test says so.
  let now = 0
  const pauses: (() => void)[] = []
  const pause = (ms: number) => new Promise<void>((resolve) => void pauses.push(() => ((now += ms), resolve())))
  const write = () => pauses.splice(0).at(-1)?.()
  const gateway = await openGateway(t, routes, undefined, {}, {}, undefined, { leases: true, clock: () => now, pause })
  const other: Store = await openStore(gateway.storeUrl)
  t.teardown(() => other.close())
  const plan = { product: 'Coding', coding: { ...CODING, sessionWindow: { tokens: 100_000, durationSeconds: 18_000 }, weeklyWindow: { tokens: 100_000 } } } as const
  const subscription = await gateway.plan('coder', plan)
  const { raw, version } = await gateway.key(subscription)
  let atOnce = 0
  const { decideNow } = gateway.store
  gateway.store.decideNow = ((...args: Parameters<typeof decideNow>) => {
    const answer = decideNow(...args)
    if (answer?.outcome === 'admitted') atOnce++
    return answer
  }) as typeof decideNow
  const ask = async (stream = false) => {
    const payload = { model: 'svc-code', max_tokens: 400, messages: [{ role: 'user', content: 'Hello' }], ...(stream ? { stream } : {}) }
    const { statusCode, headers, body } = await gateway.app.inject({ method: 'POST', url: '/v1/chat/completions', headers: bearer(raw), payload })
    return { status: statusCode, headers, body }
  }
  t.match(await ask(), { status: 200 })
  t.equal(atOnce, 0)
  // A gateway that gets many requests: otherwise each is written at once.
  const stale = { op: 'admit', id: 'stale', instance: 'stale', keyId: 'stale', keyCap: null, keysVersion: -1, promptBytes: 10, maxOutputTokens: 10 } as const
  for (let n = 0; n < 20; n++) await gateway.store.change(subscription, stale, START)
  return {
    upstream,
    other,
    subscription,
    key: version,
    async suspend(): Promise<void> {
      const { plan, terms } = (await other.subscription(subscription)) as Subscription
      await other.change(subscription, { op: 'applyPlan', plan: { ...plan, uid: 'coder', createdAt: START, generation: 2 }, product: 'Coding', terms, state: 'Suspended', activeFrom: null, activeUntil: null, verdict: null }, START)
    },
    ask,
    /** A request that the lease admits, once the model has answered it. */
    async begin(stream: boolean) {
      const [asked, admitted] = [upstream.requests.length, atOnce]
      let isAnswered = false
      const answer = ask(stream).finally(() => (isAnswered = true))
      while (upstream.requests.length === asked) await nextTurn()
      for (let turns = 0; turns < 20; turns++) await nextTurn()
      t.equal(atOnce, admitted + 1)
      t.notOk(isAnswered, 'no answer leaves before its admission is stored')
      return { answer }
    },
    /** Writes until the request is answered. */
    async written<T>(answer: Promise<T>): Promise<T> {
      let isAnswered = false
      void answer.finally(() => (isAnswered = true))
      while (!isAnswered) {
        write()
        await nextTurn()
      }
      return answer
    },
    /** Writes until nothing is reserved, and returns the tokens used. */
    async used() {
      for (;;) {
        const record = await other.subscription(subscription)
        if (Object.keys(record?.coding?.reservations ?? {}).length === 0) return record?.coding?.session?.used ?? 0
        write()
        await nextTurn()
      }
    },
  }
}

for (const stream of [false, true]) {
  const kind = stream ? 'stream' : 'JSON'
  t.test(`${kind}: an answer leaves once its admission is written, and is charged once`, async (t) => {
    const { begin, written, used } = await setUp(t)
    const { answer } = await begin(stream)
    t.match(await written(answer), { status: 200, body: /hi/ })
    const charged = await used()
    t.equal(charged, 2 * TOKENS)
  })

  t.test(`${kind}: a plan that was suspended elsewhere is refused at the next request, which is charged nothing`, async (t) => {
    const { begin, written, used, suspend, ask } = await setUp(t)
    await suspend()
    const { answer } = await begin(stream)
    t.match(await written(answer), SUSPENDED)
    t.match(await ask(stream), SUSPENDED)
    t.equal(await used(), TOKENS)
  })

  t.test(`${kind}: a key that was revoked elsewhere is refused at the next request, which is charged nothing`, async (t) => {
    const { begin, written, used, other, subscription, key } = await setUp(t)
    await other.setKey(key.id, { state: 'revoked' }, [])
    await other.change(subscription, { op: 'keysChanged' }, START)
    const { answer } = await begin(stream)
    t.match(await written(answer), { status: 401, body: /"code":"invalid_api_key"/ })
    t.equal(await used(), TOKENS)
  })

  t.test(`${kind}: when another key of the plan has changed elsewhere, the request is admitted again, answered, and charged once`, async (t) => {
    const { begin, written, used, other, subscription, upstream } = await setUp(t)
    await other.change(subscription, { op: 'keysChanged' }, START)
    const { answer } = await begin(stream)
    t.match(await written(answer), { status: 200, body: /hi/ })
    t.equal(upstream.requests.length, 2)
    t.equal(await used(), 2 * TOKENS)
  })
}

/** More than was reserved. */
const LONG = 'many words '.repeat(400)

t.test('an answer that outgrows its reservation before its admission is written goes on where that is admitted again', async (t) => {
  const rest = Promise.withResolvers<void>()
  const { begin, written, used, other, subscription, upstream } = await setUp(t)
  upstream.respondWith(async (response) => {
    const parts = chatStream(LONG)
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(parts.slice(0, 3).join(''))
    await rest.promise
    response.end(parts.slice(3).join(''))
  })
  await other.change(subscription, { op: 'keysChanged' }, START)
  const { answer } = await begin(true)
  rest.resolve()
  t.match(await written(answer), { status: 200, body: /many words[^]*\[DONE\]/ })
  t.ok((await used()) > 2 * TOKENS)
})

t.test('an answer to a request that got less when it was written extends what it got', async (t) => {
  const [more, rest] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const { begin, written, used, other, subscription, upstream } = await setUp(t)
  upstream.respondWith(async (response) => {
    const parts = chatStream('hi', LONG.slice(0, 500))
    response.writeHead(200, { 'content-type': 'text/event-stream' })
    response.write(parts.slice(0, 3).join(''))
    await more.promise
    response.write(parts[3])
    await rest.promise
    response.end(parts.slice(4).join(''))
  })
  const { answer } = await begin(true)
  const key = { keyId: 'other', keyCap: null, keysVersion: 1 }
  await other.change(subscription, { op: 'admit', id: 'other', instance: 'other', ...key, promptBytes: 10, maxOutputTokens: 10 }, START)
  await other.change(subscription, { op: 'settle', id: 'other', usage: { input: 100_000 - TOKENS - 20, cachedInput: 0, output: 0 }, estimated: false }, START)
  const isWritten = written(answer)
  const reserved = async () => Object.values((await other.subscription(subscription))?.coding?.reservations ?? {}).map(({ tokens }) => tokens)
  while ((await reserved()).length === 0) await nextTurn()
  t.same(await reserved(), [20])
  more.resolve()
  while ((await reserved())[0] === 20) await nextTurn()
  rest.resolve()
  t.match(await isWritten, { status: 200, body: /\[DONE\]/ })
  t.ok((await used()) > 100_000)
})

t.test('when a window was filled elsewhere beyond what was reserved there, the request is refused by the window', async (t) => {
  const { begin, written, used, other, subscription } = await setUp(t)
  const admit = { op: 'admit', id: 'other', instance: 'other', keyId: 'other', keyCap: null, keysVersion: 1, promptBytes: 10, maxOutputTokens: 10 } as const
  t.match(await other.change(subscription, admit, START), { outcome: 'admitted' })
  await other.change(subscription, { op: 'settle', id: 'other', usage: { input: 200_000, cachedInput: 0, output: 0 }, estimated: false }, START)
  const { answer } = await begin(false)
  t.match(await written(answer), { status: 429, body: /"code":"weekly_limit_reached"/, headers: { 'x-codex-primary-used-percent': '100' } })
  t.equal(await used(), TOKENS + 200_000)
})
