/** The work of translating a long conversation: the blocks of our code that run, counted by V8, and never the time. */
import { Session } from 'node:inspector/promises'
import t from 'tap'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { WIRES, type CodingRequest, type WireName } from '../../src/upstream/wires/wire.ts'

const open = openIds([Buffer.alloc(48, 1)])
const TARGET = { origin: 'one', model: 'm', maxTokensField: null, policy: { allow: new Set<string>(), drop: new Set<string>(), force: {} } }
const NONE: ReadonlySet<string> = new Set()

const session = new Session()
session.connect()
await session.post('Profiler.enable')
await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: true })
t.teardown(() => session.disconnect())

/** How often blocks of `src` run meanwhile. */
async function workOf(run: () => void): Promise<number> {
  await session.post('Profiler.takePreciseCoverage')
  run()
  const { result } = await session.post('Profiler.takePreciseCoverage')
  const ours = result.filter(({ url }) => url.includes('/src/'))
  return ours.flatMap(({ functions }) => functions).flatMap(({ ranges }) => ranges).reduce((sum, { count }) => sum + count, 0)
}

const sealed = (n: number) => open('a/b').encrypt('sealed_', JSON.stringify({ details: [{ type: 'reasoning.text', text: 'x', index: n }] }))
const many = <T>(n: number, make: (index: number) => T): T[] => Array.from({ length: n }, (_, index) => make(index))
const responses = (input: object[]): CodingRequest => readResponsesRequest({ model: 'svc-code', input, reasoning: { effort: 'low' } }, NONE)
const chat = (messages: object[]): CodingRequest => readChatRequest({ model: 'svc-code', messages }, NONE)
const messages = (content: object[]): CodingRequest =>
  readMessagesRequest({ model: 'svc-code', max_tokens: 9, messages: [{ role: 'assistant', content }] }, NONE, { betas: [], promptTokens: () => 1 })

const call = (n: number) => ({ type: 'function_call', call_id: `c${n}`, name: 'read', arguments: '{"a":1}' })
const output = (n: number) => ({ type: 'function_call_output', call_id: `c${n}`, output: 'x' })
const chatCall = (n: number) => ({ id: `c${n}`, type: 'function', function: { name: 'read', arguments: '{}' } })
const use = (n: number) => ({ type: 'tool_use', id: `c${n}`, name: 'read', input: {} })
const reasoning = (n: number) => ({ type: 'reasoning', id: `rs_${n}`, summary: [], encrypted_content: sealed(n) })

/** A request with `n` of something. */
const CONVERSATIONS: Record<string, (n: number) => () => CodingRequest> = {
  'calls without results': (n) => () => responses(many(n, call)),
  'calls and then their results': (n) => () => responses([...many(n, call), ...many(n, output)]),
  'calls, each with its result': (n) => () => responses(many(n, (index) => [call(index), output(index)]).flat()),
  'results in the reverse order': (n) => () => responses([...many(n, call), ...many(n, output).toReversed()]),
  'messages between calls and results': (n) => () => responses([...many(n, call), ...many(n, () => ({ role: 'user', content: 'x' })), ...many(n, output)]),
  reasoning: (n) => { const items = many(n, reasoning); return () => responses([...items, { role: 'assistant', content: 'x' }]) },
  'reasoning between calls': (n) => { const items = many(n, (index) => [reasoning(index), call(index)]).flat(); return () => responses(items) },
  'assistant messages': (n) => () => responses(many(n, () => ({ role: 'assistant', content: 'x' }))),
  'developer messages': (n) => () => responses(many(n, () => ({ role: 'developer', content: 'x' }))),
  'chat calls': (n) => () => chat([{ role: 'assistant', content: null, tool_calls: many(n, chatCall) }, ...many(n, (index) => ({ role: 'tool', tool_call_id: `c${index}`, content: 'x' }))]),
  'chat reasoning': (n) => { const details = many(n, (index) => ({ type: 'reasoning.encrypted', data: sealed(index) })); return () => chat([{ role: 'assistant', content: 'x', reasoning_details: details }]) },
  'content parts': (n) => () => chat([{ role: 'user', content: many(n, () => ({ type: 'text', text: 'x' })) }]),
  'tool_use blocks': (n) => () => messages(many(n, use)),
  'thinking blocks': (n) => { const blocks = many(n, (index) => ({ type: 'thinking', thinking: 'x', signature: `rs_1.${sealed(index)}` })); return () => messages(blocks) },
  tools: (n) => () => readResponsesRequest({ model: 'svc-code', input: 'x', tools: many(n, (index) => ({ type: 'function', name: `f${index}`, parameters: {} })) }, NONE),
}

t.test('the work of a translation grows with the request and not faster', async (t) => {
  for (const [name, conversation] of Object.entries(CONVERSATIONS)) {
    for (const wire of WIRES) {
      const work = async (n: number) => {
        const read = conversation(n)
        return workOf(() => read().call(40_000, open('a/b'), () => 1, [wire]).body(TARGET))
      }
      await work(50)
      const [small, large] = [await work(200), await work(800)]
      t.ok(large < small * 5, `${name} over ${wire}: ${small} and ${large}`)
    }
  }
})

t.test('a conversation of hundreds of thousands of items is carried, and a flood of ids is refused', async (t) => {
  const thoughts = many(150_000, () => ({ type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'x' }))
  const block = open('a/b').encrypt('enc_', 'thinking:{"type":"thinking","thinking":"x","signature":"y"}')
  const wires: WireName[] = ['messages']
  const body = responses([...thoughts.map((item) => ({ ...item, encrypted_content: block })), { role: 'assistant', content: 'x' }]).call(40_000, open('a/b'), () => 1, wires).body(TARGET)
  t.equal(JSON.parse(body).messages[0].content.length, 150_001)
  const forged = many(25_001, (n) => call(n)).map((item, n) => ({ ...item, call_id: `call_${'A'.repeat(20)}${n}` }))
  for (const wire of WIRES) t.throws(() => responses(structuredClone(forged)).call(40_000, open('a/b'), () => 1, [wire]), { code: 'invalid_request', message: /25,000/ }, wire)
  t.ok(responses(forged.slice(0, 25_000)).call(40_000, open('a/b'), () => 1, ['chat']))
})
