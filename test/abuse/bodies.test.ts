/** Large and hostile JSON bodies: the values that are read, the turns that the event loop gets meanwhile, the memory that is held. */
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import type { FastifyInstance } from 'fastify'
import t from 'tap'
import { parseIncrementally, SLICE } from '../../src/json/incremental-json.ts'
import { MAX_VALUES } from '../../src/json/json-faults.ts'
import { parseStrictJson, textOf } from '../../src/json/strict-json.ts'
import { openBodyBudget } from '../../plugins/request-body/body-budget.ts'
import { bearer, CODING, openGateway } from '../plugins/gateway.ts'

const MIB = 1024 * 1024
const members = (count: number, text: (i: number) => string) => Array.from({ length: count }, (_, i) => text(i)).join()

/** Bodies that took seconds once. */
const REFUSED: Record<string, () => string> = {
  '31 MiB of numbers': () => `[${'1,'.repeat(15.5 * MIB)}1]`,
  'a number with an exponent among 8 MiB of others': () => `[1e1,${'1,'.repeat(4 * MIB)}1]`,
  '990,000 members': () => `{${members(990_000, (i) => `"${i}":1`)}}`,
  '16 MiB of "data:" strings': () => `[${'"data:",'.repeat(2 * MIB)}1]`,
}

/** The number of values after each slice, and the outcome. */
function slicesOf(text: string): { counts: number[]; failure: Error | null } {
  const counts = [0]
  try {
    const steps = parseIncrementally(text, 'faithful')
    for (let step = steps.next(); ; step = steps.next()) {
      counts.push(step.done ? step.value.values : step.value)
      if (step.done) return { counts, failure: null }
    }
  } catch (error) {
    return { counts, failure: error as Error }
  }
}

for (const [name, text] of Object.entries(REFUSED)) {
  t.test(`${name}: refused after the values that a body may have, read in slices`, async (t) => {
    const { counts, failure } = slicesOf(text())
    t.match(failure, { code: 'invalid_json', message: /more than 100000 values/ })
    t.ok((counts.at(-1) ?? 0) <= MAX_VALUES)
    for (const [i, count] of counts.slice(1).entries()) t.ok(count - (counts[i] ?? 0) <= SLICE.values)
  })
}

t.test('one string of 31 MiB is read in slices, whatever it holds', async (t) => {
  for (const unit of ['x', '\\n', '\\"', '\\u0041', '\\ud83d\\ude00', '中', '\\"data:', ' ']) {
    const text = `{"a":"${unit.repeat((31 * MIB) / Buffer.byteLength(unit))}"}`
    const { counts, failure } = slicesOf(text)
    t.equal(failure, null)
    t.ok(counts.length - 1 >= Math.floor(text.length / (SLICE.characters + 12)), unit)
  }
})

/** The value by the incremental parser. */
function wholeOf(bytes: Buffer): { value: unknown } {
  const steps = parseIncrementally(textOf(bytes), 'faithful')
  for (;;) {
    const { done, value } = steps.next()
    if (done) return value
  }
}

async function openBodies(t: Parameters<typeof openGateway>[0], bodies = {}) {
  const waiting: (() => void)[] = []
  const routes = (app: FastifyInstance) => {
    app.post('/v1/hold', { config: { api: 'coding' }, bodyLimit: 32 * MIB }, async () => {
      await new Promise<void>((resolve) => waiting.push(resolve))
      return {}
    })
  }
  const gateway = await openGateway(t, routes, () => {}, {}, bodies)
  const { raw } = await gateway.key(await gateway.plan('coder', { product: 'Coding', coding: CODING }))
  const send = (payload: string) => gateway.app.inject({ method: 'POST', url: '/v1/hold', headers: { ...bearer(raw), 'content-type': 'application/json' }, payload })
  return { send, waiting }
}

/** Counts the turns of the event loop until the promise is settled. */
async function turnsOf(promise: Promise<unknown>): Promise<number> {
  let turns = 0
  let isOver = false
  void promise.finally(() => (isOver = true))
  for (; !isOver; turns++) await new Promise((resolve) => setImmediate(resolve))
  return turns
}

t.test('the event loop turns while large bodies are parsed, as often for two at once', async (t) => {
  const { send, waiting } = await openBodies(t, { budget: openBodyBudget(512 * MIB) })
  const text = `["${'x'.repeat(16 * MIB)}"]`
  const slices = text.length / SLICE.characters
  const both = [send(text), send(text)]
  const parsed = (async () => {
    while (waiting.length < 2) await new Promise((resolve) => setImmediate(resolve))
  })()
  t.ok((await turnsOf(parsed)) >= 2 * Math.floor(slices) - 2)
  for (const answer of waiting) answer()
  for (const { statusCode } of await Promise.all(both)) t.equal(statusCode, 200)
  const hostile = REFUSED['31 MiB of numbers']!()
  for (const refused of await Promise.all([send(hostile), send(hostile)])) t.match([refused.statusCode, refused.json()], [400, { error: { code: 'invalid_json' } }])
})

t.test('values count in the budget of bodies, not only bytes and text', async (t) => {
  const { send, waiting } = await openBodies(t, { budget: openBodyBudget(5_000_000) })
  const text = `[${'[],'.repeat(20_000)}1]`
  const first = send(text)
  while (waiting.length < 1) await new Promise((resolve) => setImmediate(resolve))
  t.match((await send(text)).json(), { error: { code: 'server_overloaded' } })
  waiting[0]?.()
  t.equal((await first).statusCode, 200)
})

t.test('a parsed body holds less than 40 bytes of memory for a byte', async (t) => {
  setFlagsFromString('--expose-gc')
  const gc = runInNewContext('gc') as () => void
  const used = () => {
    gc()
    return process.memoryUsage().heapUsed
  }
  const count = MAX_VALUES - 10
  const texts = { numbers: `[${'1,'.repeat(count)}1]`, lists: `[${'[],'.repeat(count)}1]`, objects: `[${'{},'.repeat(count)}1]`, members: `{${members(count, (i) => `"${i}a":1`)}}`, shapes: `[${members(count / 2, (i) => `{"k${i}":1}`)}]`, digits: `[${'1e999,'.repeat(count)}1]` }
  for (const [name, text] of Object.entries(texts)) {
    for (const parse of [parseStrictJson, wholeOf]) {
      const bytes = Buffer.from(text)
      const before = used()
      const { value } = parse(bytes, 'faithful')
      const held = used() - before
      t.ok(value && held < 40 * bytes.length, `${name}: ${(held / bytes.length).toFixed(1)}`)
    }
  }
})
