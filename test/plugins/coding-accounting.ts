/** Seeded requests over the real routes, metering and SQLite store, against an upstream that reports its usage in every way; what each must charge is known. */
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { WIRES as WIRE_NAMES, type WireName } from '../../src/upstream/wires/wire.ts'
import type { Usage } from '../../src/domain/token-windows.ts'
import { respond, stream, type FakeUpstream } from '../fakes/upstream.ts'
import { messageAnswer, messageEvent } from '../fakes/messages-wire.ts'
import { chunk, completion, delta, DONE, event, message, response } from '../fakes/upstream-wire.ts'
import { rngOf, type Rng } from '../simulation/seeded-random.ts'
import { codingRoutes } from './coding-routes.ts'
import { bearer, CODING, openGateway } from './gateway.ts'

/** How the upstream ends a request, and where the client leaves. `late`: usage after the last text. `early`: in the first chunk, as 0 output. */
type Plan = {
  index: number
  stream: boolean
  usage: 'late' | 'early' | 'none' | 'negative' | 'absurd'
  upstream: 'answers' | 'fails' | 'dies'
  /** The stage at which the client disconnects. */
  leaves: 'never' | 'before the first byte' | 'in the middle'
  /** Tokens that the upstream reports: unique, so that its settlement can be told. */
  reported: Usage
}

/** What must be settled: exactly this, an estimate, or nothing. */
type Expected = { kind: 'exact'; usage: Usage } | { kind: 'estimate' } | { kind: 'nothing' }

const TEXT = ['one two', ' three', ' four five']
const TEXT_BYTES = TEXT.join('').length
const MAX_TOKENS = 100

/** The requests and answers of each native wire. `usage`: null where it is not reported there. */
type Wire = {
  path: string
  request(content: string): object
  content(body: Record<string, unknown>): string
  usage(input: number, output: number): object
  json(text: string, usage: object | null): object
  first(content: string, usage: object | null): string
  more(content: string): string
  end(usage: object | null): string
}

const textDelta = (text: string) => messageEvent('content_block_delta', { index: 0, delta: { type: 'text_delta', text } })

const PLACE = { item_id: 'msg_1', output_index: 0, content_index: 0 }
const responseText = (text: string) => event('response.output_text.delta', { ...PLACE, delta: text })

const messagesOf = { request: (content: string) => ({ max_tokens: MAX_TOKENS, messages: [{ role: 'user', content }] }), content: (body: Record<string, unknown>) => (body['messages'] as [{ content: string }])[0].content }

const WIRES: Record<WireName, Wire> = {
  responses: {
    path: '/v1/responses',
    request: (content) => ({ max_output_tokens: MAX_TOKENS, input: content }),
    content: (body) => String(body['input']),
    usage: (input, output) => ({ input_tokens: input, output_tokens: output }),
    json: (text, usage) => response('completed', [message(text)], { usage }),
    first: (content, usage) =>
      event('response.created', { response: response('in_progress', [], { usage }) }) + event('response.output_item.added', { output_index: 0, item: { ...message(''), content: [] } }) + responseText(content),
    more: responseText,
    end: (usage) => event('response.output_text.done', { ...PLACE, text: TEXT.join('') }) + event('response.output_item.done', { output_index: 0, item: message(TEXT.join('')) }) + event('response.completed', { response: response('completed', [message(TEXT.join(''))], { usage }) }),
  },
  chat: {
    path: '/v1/chat/completions',
    ...messagesOf,
    usage: (input, output) => ({ prompt_tokens: input, completion_tokens: output }),
    json: (text, usage) => completion(text, { usage }),
    first: (content, usage) => chunk([delta({ role: 'assistant', content })], usage ? { usage } : {}),
    more: (content) => chunk([delta({ content })]),
    end: (usage) => chunk([delta({}, 'stop')]) + (usage ? chunk([], { usage }) : '') + DONE,
  },
  messages: {
    path: '/v1/messages',
    ...messagesOf,
    usage: (input, output) => ({ input_tokens: input, output_tokens: output }),
    json: (text, usage) => messageAnswer([{ type: 'text', text }], 'end_turn', { usage }),
    first: (content, usage) => messageEvent('message_start', { message: messageAnswer([], null, { usage }) }) + textDelta(content),
    more: textDelta,
    end: (usage) => messageEvent('message_delta', { delta: { stop_reason: 'end_turn' }, ...(usage ? { usage } : {}) }) + messageEvent('message_stop'),
  },
}

function planOf(random: Rng, index: number): Plan {
  const stream = random.chance(0.7)
  const upstream = random.pick(['answers', 'answers', 'answers', 'fails', ...(stream ? (['dies'] as const) : [])] as const)
  return {
    index,
    stream,
    upstream,
    usage: random.pick(['late', 'late', 'early', 'none', 'negative', 'absurd'] as const),
    leaves: upstream === 'fails' ? 'never' : random.pick(['never', 'never', 'before the first byte', ...(stream ? (['in the middle'] as const) : [])] as const),
    reported: { input: 1000 + index, cachedInput: 0, output: 2000 + index },
  }
}

function expectedOf(plan: Plan, onAbort: 'Cancel' | 'Drain'): Expected {
  if (plan.upstream === 'fails') return { kind: 'nothing' }
  const isWhole = plan.upstream === 'answers' && (plan.leaves === 'never' || onAbort === 'Drain')
  if (isWhole && plan.usage === 'late') return { kind: 'exact', usage: plan.reported }
  // A stream whose usage was reported before its text has an output of 0: the counted one is charged.
  if (isWhole && plan.usage === 'early' && !plan.stream) return { kind: 'exact', usage: plan.reported }
  return { kind: 'estimate' }
}

function usageOf({ usage, reported }: Plan, early: boolean, wire: Wire): object | null {
  if (usage === 'none' || (usage === 'early') !== early) return null
  if (usage === 'negative') return wire.usage(-5, reported.output)
  if (usage === 'absurd') return wire.usage(1e12, 1e15)
  return wire.usage(reported.input, early ? 0 : reported.output)
}

/** Lets the upstream wait until the client has left, where the plan says so. */
type Gates = { seen: PromiseWithResolvers<void>; left: PromiseWithResolvers<void> }

/** Answers by the plan whose index is the text of the first message. */
function scripted(upstream: FakeUpstream, plans: Plan[], gates: Gates[], onAbort: 'Cancel' | 'Drain', wire: Wire): void {
  upstream.respondWith(async (response, { body }) => {
    const content = wire.content(body)
    const plan = plans[Number(content)]
    const gate = gates[Number(content)]
    if (!plan || !gate) throw new Error(`no plan ${content}`)
    if (plan.upstream === 'fails') return respond(response, 500, {})
    gate.seen.resolve()
    // Goes on once the gateway must know: with Cancel it aborts, with Drain it makes no difference to it.
    const clientLeaves = () => (onAbort === 'Cancel' ? once(response, 'close') : gate.left.promise)
    if (plan.leaves === 'before the first byte') await clientLeaves()
    if (response.destroyed) return
    const late = usageOf(plan, false, wire)
    const early = usageOf(plan, true, wire)
    if (!plan.stream) return respond(response, 200, wire.json(TEXT.join(''), early ? wire.usage(plan.reported.input, plan.reported.output) : late))
    const [first = '', ...others] = TEXT
    stream(response, wire.first(first, early))
    if (plan.leaves === 'in the middle') await clientLeaves()
    if (response.destroyed) return
    for (const content of others) response.write(wire.more(content))
    if (plan.upstream === 'dies') return void setImmediate(() => response.destroy())
    response.end(wire.end(late))
  })
}

/** One client. Resolves with the status, or null when it left before it. */
async function client(url: string, wire: Wire, headers: object, plan: Plan, { seen, left }: Gates): Promise<number | null> {
  const sent = httpRequest(url + wire.path, { method: 'POST', headers: { 'content-type': 'application/json', ...headers }, agent: false })
  sent.on('error', () => {})
  sent.end(JSON.stringify({ model: 'svc-code', stream: plan.stream, ...wire.request(String(plan.index)) }))
  const answered = once(sent, 'response').then(([response]) => response as IncomingMessage, () => null)
  if (plan.leaves === 'before the first byte') {
    const refused = await Promise.race([seen.promise.then(() => null), answered])
    if (refused) return (refused.resume(), refused.statusCode ?? 0)
    sent.destroy()
  }
  const response = plan.leaves === 'before the first byte' ? null : await answered
  if (plan.leaves === 'in the middle' && response?.statusCode === 200) {
    await once(response, 'data')
    response.on('error', () => {})
    sent.destroy()
  } else if (response) {
    response.on('error', () => {})
    for await (const _part of response) continue
  }
  left.resolve()
  return response?.statusCode ?? null
}

/** Runs one seed. Returns what is wrong, in sentences. */
export async function accountingFaults(t: Test, seed: number): Promise<string[]> {
  const random = rngOf(seed)
  const onAbort = random.pick(['Cancel', 'Drain'] as const)
  const limit = random.pick([1_000_000, 20_000])
  const name = random.pick(WIRE_NAMES)
  const wire = WIRES[name]
  const { upstream, upstreams, routes } = await codingRoutes(t, undefined, name, { breaker: { failures: 1_000_000 } })
  const gateway = await openGateway(t, routes)
  const settled: { usage: Usage | null; estimated: boolean }[] = []
  const reserved = new Map<string, number>()
  const beyond: number[] = []
  const change = gateway.store.change.bind(gateway.store)
  gateway.store.change = (async (id: string, command: { op: string; id: string; usage: Usage | null; estimated: boolean }, now: number) => {
    const answer = await change(id, command as never, now)
    if (command.op === 'admit' && (answer as { outcome: string }).outcome === 'admitted') reserved.set(command.id, (answer as unknown as { reserved: number }).reserved)
    if (command.op === 'settle') {
      settled.push(command)
      beyond.push(Math.max(0, (command.usage ? command.usage.input + command.usage.output : 0) - (reserved.get(command.id) ?? 0)))
    }
    return answer
  }) as typeof gateway.store.change
  const subscription = await gateway.plan('coder', { product: 'Coding', coding: { ...CODING, onAbort, sessionWindow: { tokens: limit, durationSeconds: 18_000 }, weeklyWindow: { tokens: limit }, maxConcurrentRequests: 32 } })
  const { raw } = await gateway.key(subscription)
  await gateway.app.listen({ host: '127.0.0.1', port: 0 })
  const url = `http://127.0.0.1:${(gateway.app.server.address() as AddressInfo).port}`

  const plans = Array.from({ length: random.whole(8, 24) }, (_, index) => planOf(random, index))
  const gates = plans.map(() => ({ seen: Promise.withResolvers<void>(), left: Promise.withResolvers<void>() }))
  scripted(upstream, plans, gates, onAbort, wire)
  const statuses = await Promise.all(plans.map((plan) => client(url, wire, bearer(raw), plan, gates[plan.index]!)))
  const record = await gateway.settled(subscription)
  await upstreams.close()
  await upstream.close()

  const faults: string[] = []
  const refused = plans.filter((plan) => statuses[plan.index] === 429).length
  const expected = plans.filter((plan) => statuses[plan.index] !== 429).map((plan) => ({ plan, expected: expectedOf(plan, onAbort) }))
  for (const { plan, expected: one } of expected) {
    if (one.kind === 'exact' && settled.filter(({ usage, estimated }) => !estimated && same(usage, one.usage)).length !== 1) faults.push(`not settled exactly once: ${JSON.stringify(plan)}`)
  }
  const count = (kind: Expected['kind']) => expected.filter(({ expected: one }) => one.kind === kind).length
  const nothing = settled.filter(({ usage }) => usage === null).length
  if (settled.length !== plans.length - refused) faults.push(`${settled.length} settlements of ${plans.length - refused} admitted requests`)
  if (nothing !== count('nothing')) faults.push(`${nothing} requests charged nothing instead of ${count('nothing')}`)
  const estimates = settled.filter(({ estimated }) => estimated).length
  if (estimates !== count('estimate')) faults.push(`${estimates} requests charged by estimate instead of ${count('estimate')}`)
  for (const { usage, estimated } of settled) {
    // An answer that was cut off pays for output that is not shown, which is most of what this upstream bills.
    if (estimated && (usage?.output ?? 0) > (onAbort === 'Cancel' ? MAX_TOKENS : TEXT_BYTES)) faults.push(`more charged than was streamed: ${JSON.stringify(usage)}`)
  }
  const charged = settled.reduce((sum, { usage }) => sum + (usage ? usage.input + usage.output : 0), 0)
  const used = record.coding?.weekly.used ?? -1
  if (used !== charged) faults.push(`${used} used, ${charged} charged`)
  if (used > limit + beyond.reduce((sum, one) => sum + one, 0)) faults.push(`${used} used of ${limit}, beyond the published bound`)
  return faults
}

const same = (one: Usage | null, other: Usage) => one !== null && one.input === other.input && one.output === other.output
