/** Processor time of reading and writing a long conversation, by the wires of client and upstream: `node bench/translations.ts`. No benchmark of `npm run bench`: it has no baseline but its own half. */
import { readChatRequest } from '../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../src/upstream/wires/encrypted-ids.ts'
import { readMessagesRequest } from '../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../src/upstream/wires/responses/responses-request.ts'
import { WIRES, type CodingRequest, type WireName } from '../src/upstream/wires/wire.ts'

const RUNS = 5
const SECRET = Buffer.alloc(48, 1)
const TARGET = { model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }
const HI = { role: 'user', content: 'Hi' }
const THOUGHT = 'I look at what the tool says. '

const ids = openIds([SECRET])('a/b')
const many = <T>(n: number, make: (index: number) => T): T[] => Array.from({ length: n }, (_, index) => make(index))
const called = { name: 'read', arguments: '{"a":1}' }
const call = (n: number) => ({ type: 'function_call', call_id: `c${n}`, ...called })
const chatCall = (n: number) => ({ id: `c${n}`, type: 'function', function: called })
const use = (n: number) => ({ type: 'tool_use', id: `c${n}`, name: 'read', input: { a: 1 } })
const thought = (n: number) => ids.encrypt('sealed_', JSON.stringify({ text: { member: 'reasoning_content', text: `${THOUGHT}${n}` } }))

/** Requests with `n` calls, and with `n` turns that each have reasoning, a call and its result. */
const CALLS: Record<WireName, (n: number) => object> = {
  chat: (n) => ({ messages: [HI, { role: 'assistant', content: null, tool_calls: many(n, chatCall) }] }),
  responses: (n) => ({ input: many(n, call) }),
  messages: (n) => ({ max_tokens: 9000, messages: [HI, { role: 'assistant', content: many(n, use) }] }),
}
const REASONING: Record<WireName, (n: number) => object> = {
  chat: (n) => ({
    messages: many(n, (index) => [
      { role: 'assistant', content: null, reasoning_details: [{ type: 'reasoning.encrypted', data: thought(index) }], tool_calls: [chatCall(index)] },
      { role: 'tool', tool_call_id: `c${index}`, content: 'x' },
    ]).flat(),
  }),
  responses: (n) => ({
    input: many(n, (index) => [
      { type: 'reasoning', id: `rs_${index}`, summary: [], encrypted_content: thought(index) },
      call(index),
      { type: 'function_call_output', call_id: `c${index}`, output: 'x' },
    ]).flat(),
  }),
  messages: (n) => ({
    max_tokens: 9000,
    thinking: { type: 'adaptive' },
    messages: many(n, (index) => [
      { role: 'assistant', content: [{ type: 'thinking', thinking: THOUGHT, signature: `rs_${index}.${thought(index)}` }, use(index)] },
      { role: 'user', content: [{ type: 'tool_result', tool_use_id: `c${index}`, content: 'x' }] },
    ]).flat(),
  }),
}
const READ: Record<WireName, (body: unknown) => CodingRequest> = {
  chat: (body) => readChatRequest(body, new Set()),
  responses: (body) => readResponsesRequest(body, new Set()),
  messages: (body) => readMessagesRequest(body, new Set(), { betas: [], promptTokens: () => 1 }),
}

/** Milliseconds of the fastest of `RUNS`. */
function costOf(client: WireName, wire: WireName, json: string): number {
  const costs = many(RUNS, () => {
    const body: unknown = JSON.parse(json)
    const fresh = openIds([SECRET])('a/b')
    const before = process.cpuUsage()
    READ[client](body).call(40_000, fresh, () => 1, [wire]).body(TARGET)
    const { user, system } = process.cpuUsage(before)
    return (user + system) / 1000
  })
  return Math.min(...costs)
}

for (const [what, bodies, counts] of [['calls', CALLS, [8000, 16_000]], ['turns with reasoning', REASONING, [4000, 8000]]] as const) {
  for (const client of WIRES) {
    for (const wire of WIRES) {
      const costs = counts.map((count) => {
        const json = JSON.stringify({ model: 'svc-code', ...bodies[client](count) })
        return `${count} ${what} (${(json.length / 1e6).toFixed(1)} MB): ${costOf(client, wire, json).toFixed(0)} ms`
      })
      console.log(`${client} client, ${wire} upstream: ${costs.join(', ')}`)
    }
  }
}
