/** Exactness of limits over three gateways that write one record. */
import { writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openUpstream, respond } from '../fakes/upstream.ts'
import { burst, gatewaysOf, outcome, tallied } from './burst.ts'
import { at, get, used } from './calls.ts'
import { siteFor } from './deployment.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import type { Program } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'

const THREE = ['controller', 'gateway', 'gateway', 'gateway'] as const

t.setTimeout(SIDE_TIMEOUT_MS)

/** A controller and three gateways with a plan and its key, both named `name`. Null if the test is skipped. */
async function startThree(t: Test, plan: object, upstreams?: string): Promise<{ program: Program; gateways: Program[]; key: string } | null> {
  const place = await siteFor(t)
  if (place === null) return null
  const { site, folder } = place
  await declare(folder, 'plans', plan, apiKey('key', 'plan'))
  if (upstreams) await writeFile(join(folder, 'upstreams.yaml'), upstreams)
  const program = await site.start({ folder, roles: THREE })
  t.teardown(() => program.kill())
  return { program, gateways: gatewaysOf(program), key: await program.key('key') }
}

/** Retries after 503 and 429 as Retry-After says: a request that is refused for its price counts like a read. */
async function untilServed(...request: Parameters<typeof outcome>): ReturnType<typeof outcome> {
  for (;;) {
    const answered = await outcome(...request)
    if (answered.status !== 503 && answered.code !== 'rate_limited') return answered
    await pause(Number(answered.headers.get('retry-after')) * 1000)
  }
}

t.test('of 2,000 creations over three gateways exactly those are accepted that the balance covers', async (t) => {
  const prices = [{ kind: 'image', amount: '1.00', per: 'Job' }]
  const three = await startThree(t, mediaPlan('plan', { requestsPerMinute: 1_000_000 }, { allowance: '400.00', maxQueuedTasks: 2000, prices }))
  if (!three) return
  const { program, gateways, key } = three
  const answers = await burst(2000, 2000, (index) => {
    const body = { kind: 'image', prompt: `order ${index}`, size: '32x32' }
    return untilServed(gateways[index % gateways.length] as Program, key, '/api/v1/generations', body, { 'idempotency-key': `order-${index}` })
  })
  const taken = answers.filter(({ status }) => status === 200 || status === 202)
  t.equal(taken.length, 400, JSON.stringify(tallied(answers)))
  t.equal(new Set(taken.map(({ body }) => at(body, 'id'))).size, 400)
  t.ok(answers.every(({ status, code }) => status === 200 || status === 202 || code === 'insufficient_balance'), JSON.stringify(tallied(answers)))
  t.match((await get(program, key, '/api/v1/usage')).body, { available: '0.0000', held: '400.0000', burned: '0.0000' })
})

t.test('2,000 concurrent coding requests over three gateways exceed a limit by at most the published bound', async (t) => {
  const [AT_ONCE, OUTPUT, LIMIT] = [2000, 100, 50_000]
  const upstream = await openUpstream()
  t.teardown(() => upstream.close())
  const uses = (response: ServerResponse, tokens: number): void =>
    respond(response, 200, {
      id: 'x',
      object: 'chat.completion',
      created: 1,
      model: 'fake-1',
      choices: [{ index: 0, message: { role: 'assistant', content: 'Hello' }, finish_reason: 'stop' }],
      usage: { prompt_tokens: 0, completion_tokens: tokens, total_tokens: tokens },
    })
  const windows = { sessionWindow: { tokens: LIMIT, durationSeconds: 18_000 }, weeklyWindow: { tokens: 10 * LIMIT }, maxConcurrentRequests: 1000 }
  const upstreams = `upstreams: [{ name: fake, baseUrl: "${upstream.url}", model: fake-1, apiKey: none, wire: chat }]\n`
  const three = await startThree(t, codingPlan('plan', { requestsPerMinute: 1_000_000 }, windows), upstreams)
  if (!three) return
  const { program, gateways, key } = three
  const body = { model: 'svc-code', max_tokens: OUTPUT, messages: [{ role: 'user', content: 'Hello' }] }
  const ask = (index: number): ReturnType<typeof outcome> => untilServed(gateways[index % gateways.length] as Program, key, '/v1/chat/completions', body)

  // No request is answered before all others are in flight or refused, so that all reservations exist at once.
  const allKnown = Promise.withResolvers<void>()
  let known = 0
  const another = (): void => {
    if (++known === AT_ONCE) allKnown.resolve()
  }
  upstream.respondWith(async (response) => {
    another()
    await allKnown.promise
    uses(response, 60)
  })
  const first = await burst(AT_ONCE, AT_ONCE, async (index) => {
    const answered = await ask(index)
    if (answered.status !== 200) another()
    return answered
  })
  const reserved = tallied(first)['200'] ?? 0
  t.same(tallied(first), { '200': reserved, '429 window_reserved': AT_ONCE - reserved })
  t.ok(reserved > 0 && reserved * OUTPUT <= LIMIT, `${reserved} reserved their output, and a little for the prompt`)
  const settled = (await used(program, key)).session
  t.equal(settled, reserved * 60)

  // Now some settle, with more than they reserved, while others request admission.
  const BEYOND = 7
  upstream.respondWith(async (response) => {
    await pause(100)
    uses(response, OUTPUT + BEYOND)
  })
  const second = await burst(AT_ONCE, AT_ONCE, ask)
  const answered = tallied(second)['200'] ?? 0
  const { session } = await used(program, key)
  const seen = `${session} used, ${settled} of it before ${JSON.stringify(tallied(second))}`
  t.equal(session, settled + answered * (OUTPUT + BEYOND), seen)
  // These include all requests in flight when the last one was admitted.
  t.ok(session <= LIMIT + answered * BEYOND, seen)

  // With everything settled, sequential requests reach the limit: no reservation was left behind.
  while ((await ask(0)).status === 200);
  const reached = (await used(program, key)).session
  t.ok(reached > LIMIT - 2 * OUTPUT, `${reached} after ${seen}`)
  // A single request gets the rest, and uses as much as any other here.
  t.ok(reached <= Math.max(session, LIMIT + OUTPUT + BEYOND), `${reached} after ${seen}`)
})
