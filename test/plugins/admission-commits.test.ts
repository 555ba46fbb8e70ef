/** Coding requests whose admission is stored late or never: the real routes, metering and SQLite store of a process that alone writes it, on a disk that the test holds up or fails. */
import { request as httpRequest } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import type { ChangeOptions } from '../../src/backends/store/record-change-options.ts'
import type { VersionedRecords } from '../../src/backends/store/versioned-records.ts'
import { Unavailable, Unwritable } from '../../src/domain/errors.ts'
import { respond, type Script } from '../fakes/upstream.ts'
import { completion } from '../fakes/upstream-wire.ts'
import { answers, codingRoutes } from './coding-routes.ts'
import { bearer, CODING, openGateway } from './gateway.ts'

/** A write that waits for `end`. */
type Held = { begun: Promise<void>; end: PromiseWithResolvers<void> }

async function setUp(t: Test, script: Script, changes: ChangeOptions = { retryForMs: 0, clock: () => 0 }) {
  const { upstream, upstreams, routes } = await codingRoutes(t, script)
  t.teardown(async () => {
    await upstreams.close()
    await upstream.close()
  })
  let isFull = false
  const writes: (() => Promise<void>)[] = []
  const afterwards: (() => Promise<void>)[] = []
  const wrap = (records: VersionedRecords): VersionedRecords => ({
    ...records,
    async replace(...args) {
      await writes.shift()?.()
      if (isFull) throw DISK_FULL()
      const outcome = await records.replace(...args)
      await afterwards.shift()?.()
      return outcome
    },
  })
  const gateway = await openGateway(t, routes, undefined, {}, {}, undefined, { isSole: true, ...changes, wrap })
  // Of each admission, its settlement.
  let unsettled = 0
  const calls = { atOnce: 0, byPromise: 0 }
  const { decide, decideNow, change } = gateway.store
  gateway.store.decideNow = ((id, command, now, write) => {
    const stored = () => {
      if (command.op === 'settle') unsettled--
      write.stored()
    }
    const answer = decideNow(id, command, now, { stored, lost: (error) => write.lost(error) })
    if (answer?.outcome === 'admitted') unsettled++
    if (answer !== null) calls.atOnce++
    return answer
  }) as typeof decideNow
  gateway.store.decide = (async (...args: Parameters<typeof decide>) => {
    calls.byPromise++
    const decided = await decide(...args)
    if (decided.answer.outcome === 'admitted') unsettled++
    return decided
  }) as typeof decide
  gateway.store.change = (async (...args: Parameters<typeof change>) => {
    if (args[1].op === 'settle') calls.byPromise++
    const answer = await change(...args)
    if (args[1].op === 'settle') unsettled--
    return answer
  }) as typeof change
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: { ...CODING, sessionWindow: { tokens: 200, durationSeconds: 18_000 } } })
  const { raw } = await gateway.key(subscription)
  await gateway.app.listen({ host: '127.0.0.1', port: 0 })
  const url = `http://127.0.0.1:${(gateway.app.server.address() as AddressInfo).port}`
  const headers = { ...bearer(raw), 'content-type': 'application/json' }
  const body = (stream: boolean) => JSON.stringify({ model: 'svc-code', max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }], ...(stream ? { stream } : {}) })
  // A key is known from its first use on.
  t.equal((await fetch(`${url}/v1/models`, { headers })).status, 200)
  return {
    upstream,
    calls,
    async ask(stream: boolean) {
      const answer = await fetch(`${url}/v1/chat/completions`, { method: 'POST', headers, body: body(stream) })
      return { status: answer.status, headers: Object.fromEntries(answer.headers), text: await answer.text() }
    },
    /** A request that the client can abort. */
    send(stream: boolean) {
      const sent = httpRequest(`${url}/v1/chat/completions`, { method: 'POST', headers, agent: false })
      sent.on('error', () => {})
      sent.end(body(stream))
      return sent
    },
    /** Holds up the write after so many more. */
    hold(others = 0): Held {
      const [begun, end] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
      writes.push(...Array.from({ length: others }, () => async () => {}), () => (begun.resolve(), end.promise))
      return { begun: begun.promise, end }
    },
    /** Whether writes fail from now on. */
    fill: (full: boolean) => void (isFull = full),
    /** The write after so many more takes effect, and is not answered. */
    lose(others: number): void {
      afterwards.push(...Array.from({ length: others }, () => async () => {}), () => Promise.reject(new Unavailable('store', new Error('no answer came'))))
    },
    /** As many requests as show that what was sent before them is waiting. */
    async others() {
      for (let i = 0; i < 3; i++) await fetch(`${url}/v1/models`, { headers }).then((models) => models.text())
    },
    /** Tokens of the week, once every request is settled. */
    async used() {
      while (unsettled > 0) await nextTurn()
      return (await gateway.settled(subscription)).coding?.weekly.used
    },
  }
}

const DISK_FULL = () => new Unwritable('store', new Error('database or disk is full'))
const UNAVAILABLE = { status: 503, headers: { 'retry-after': '2' }, text: /"code":"unavailable"/ }

const unhandled: unknown[] = []
process.on('unhandledRejection', (reason) => unhandled.push(reason))

for (const stream of [false, true]) {
  const kind = stream ? 'stream' : 'JSON'
  t.test(`${kind}: when the disk is full after the upstream has answered, the answer is a 503 and charges nothing`, async (t) => {
    const finished = Promise.withResolvers<void>()
    const { ask, hold, others, used, upstream } = await setUp(t, (response, received) => answers(response.once('finish', finished.resolve), received))
    const { end } = hold()
    const answered = ask(stream)
    await finished.promise
    await others()
    end.reject(DISK_FULL())
    t.match(await answered, UNAVAILABLE)
    t.equal(await used(), 0)
    t.equal(upstream.requests.length, 1)
    t.match(await ask(stream), { status: 200 })
    t.equal(await used(), 25, 'the next one is charged')
  })

  t.test(`${kind}: when the disk is full while the upstream works, it is cancelled there and answered at once`, async (t) => {
    const asked = Promise.withResolvers<void>()
    const { ask, hold, used, upstream } = await setUp(t, () => asked.resolve())
    const { end } = hold()
    const answered = ask(stream)
    await asked.promise
    const aborted = upstream.nextAbort()
    end.reject(DISK_FULL())
    t.match(await answered, UNAVAILABLE)
    await aborted
    t.equal(await used(), 0)
  })

  t.test(`${kind}: when the upstream fails, the answer does not wait for the commit, and charges nothing if that fails as well`, async (t) => {
    const { ask, hold, used } = await setUp(t, (response) => respond(response, 500, {}))
    // After a failure no request is sent before its admission is stored.
    for (const outcome of ['succeeds', 'fails']) {
      const { begun, end } = hold()
      const answered = ask(stream)
      await begun
      t.match(await answered, { status: 503, text: /"code":"server_overloaded"/ })
      if (outcome === 'fails') end.reject(DISK_FULL())
      else end.resolve()
      t.equal(await used(), 0, `the commit ${outcome}`)
    }
  })

  t.test(`${kind}: a client that leaves before the commit pays its prompt, and nothing if the commit fails`, async (t) => {
    let asked = Promise.withResolvers<void>()
    const { send, hold, used, upstream } = await setUp(t, () => asked.resolve())
    let before = 0
    for (const outcome of ['succeeds', 'fails']) {
      asked = Promise.withResolvers<void>()
      const { end } = hold()
      const sent = send(stream)
      await asked.promise
      const aborted = upstream.nextAbort()
      sent.destroy()
      await aborted
      if (outcome === 'fails') end.reject(DISK_FULL())
      else end.resolve()
      const charged = ((await used()) ?? -1) - before
      t.ok(outcome === 'fails' ? charged === 0 : charged > 0 && charged < 50, `the commit ${outcome}, ${charged} tokens are charged`)
      before += charged
    }
  })
}

t.test('while the disk is full requests are refused without a wait, and none reaches the upstream but the one that was sent when it became so; they pass again once a write succeeds', async (t) => {
  const asked = Promise.withResolvers<void>()
  // Nothing is ever given up for its time.
  const { ask, hold, fill, used, upstream } = await setUp(t, (response, received) => (asked.resolve(), answers(response, received)), { clock: () => 0 })
  const { end } = hold()
  fill(true)
  const first = ask(false)
  await asked.promise
  end.reject(DISK_FULL())
  t.match(await first, UNAVAILABLE)
  for (let refused = 0; refused < 10; refused++) t.match(await ask(refused % 2 === 0), UNAVAILABLE)
  t.equal(upstream.requests.length, 1)
  fill(false)
  t.equal(await used(), 0)
  for (const stream of [false, true]) t.match(await ask(stream), { status: 200 })
  t.equal(upstream.requests.length, 3)
  t.equal(await used(), 2 * 25)
})

t.test('a client that leaves before the commit pays its prompt once, also when the commit is repeated because nobody knows whether it took effect', async (t) => {
  const asked = Array.from({ length: 3 }, () => Promise.withResolvers<void>())
  const waiting = [...asked]
  const { send, hold, lose, others, used, upstream } = await setUp(t, () => waiting.shift()?.resolve(), { clock: () => 0 })
  const leave = async (sent: ReturnType<typeof send>) => {
    const aborted = upstream.nextAbort()
    sent.destroy()
    await aborted
    await others()
  }
  const alone = send(false)
  await asked[0]?.promise
  await leave(alone)
  const once = (await used()) ?? 0
  t.ok(once > 0)

  const { begun, end } = hold()
  // Its admission and what follows is one commit, after that of the request which is held up.
  lose(1)
  const heldUp = send(false)
  await begun
  const repeated = send(false)
  await Promise.all(asked.map(({ promise }) => promise))
  await leave(repeated)
  await leave(heldUp)
  end.resolve()
  t.equal(await used(), 3 * once)
})

for (const outcome of ['succeeds', 'fails']) {
  t.test(`a refusal waits for the commit of the settlement that it rests on, which ${outcome}`, async (t) => {
    const { ask, hold, others, used } = await setUp(t, (response) => respond(response, 200, completion('hi', { usage: { prompt_tokens: 200, completion_tokens: 1 } })))
    const { begun, end } = hold(1)
    t.match(await ask(false), { status: 200 })
    await begun
    let isOver = false
    const refused = ask(false).then((answer) => ({ ...answer, isOver }))
    await others()
    isOver = true
    if (outcome === 'fails') end.reject(DISK_FULL())
    else end.resolve()
    t.match(await refused, { isOver: true, ...(outcome === 'fails' ? UNAVAILABLE : { status: 429, text: /"code":"session_limit_reached"/ }) })
    t.equal(await used(), 201, 'the settlement is repeated')
  })
}

t.test('ordinary requests are admitted and settled without a promise, also where the record has been at rest', async (t) => {
  const { ask, used, calls } = await setUp(t, answers)
  t.match(await ask(false), { status: 200 })
  t.equal(await used(), 25, 'the first one finds out whether the store stores')
  Object.assign(calls, { atOnce: 0, byPromise: 0 })
  for (const requests of [[false], [true], [true, false]]) {
    for (const answered of await Promise.all(requests.map(ask))) t.match(answered, { status: 200 })
    await used()
  }
  t.same(calls, { atOnce: 8, byPromise: 0 })
})

t.test('no rejection of all these was left unhandled', async (t) => t.same(unhandled, []))
