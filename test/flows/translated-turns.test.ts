/** Turns of real clients over an upstream of the other wire: what the model needs back comes back, and no byte of an answer names it. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { openUpstream, respond, stream, type FakeUpstream, type Script } from '../fakes/upstream.ts'
import { chunk, completion, delta, DONE, event, message, response, RESPONSE_USAGE, USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import { need } from '../servers/client.ts'
import { used } from './calls.ts'
import { codex } from './codex.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- bodies of requests are compared, not typed

const SIGNATURE = { [VENDOR]: { thought_signature: 'c2lnbmF0dXJl' } }
const THOUGHT = 'I run the command.'

/** A program over one scripted upstream of this wire. */
async function setUp(t: Test, wire: 'chat' | 'responses', script: Script): Promise<{ upstream: FakeUpstream; program: Program; folder: string; key: string }> {
  const upstream = await openUpstream(script)
  const { folder, program } = await startOverOneWire(t, upstream, wire)
  return { upstream, program, folder, key: await program.key('team-key') }
}

/** A reasoning model on the chat wire that calls tools in its first turn and answers in its second. */
function chatModel(calls: { name: string; arguments: string }[]): Script {
  return (answer, { body }) => {
    const messages = body['messages'] as Loose[]
    const last = messages.at(-1).role === 'tool'
    const tools = calls.map((call, index) => ({ index, id: `${VENDOR}:${index}`, type: 'function', function: call, extra_content: SIGNATURE }))
    if (!body['stream']) {
      const whole = last ? { content: 'Done.' } : { content: null, reasoning_content: THOUGHT, tool_calls: tools }
      return respond(answer, 200, completion('', { choices: [{ index: 0, message: whole, finish_reason: last ? 'stop' : 'tool_calls' }] }))
    }
    const parts = last
      ? [chunk([delta({ role: 'assistant', content: 'Do' })]), chunk([delta({ content: 'ne.' })]), chunk([delta({}, 'stop')])]
      : [
          ...[...THOUGHT].map((letter) => chunk([delta({ reasoning_content: letter })])),
          ...tools.flatMap(({ function: called, ...call }) => [
            chunk([delta({ tool_calls: [{ ...call, function: { name: called.name, arguments: '' } }] })]),
            ...[...called.arguments].map((letter) => chunk([delta({ tool_calls: [{ index: call.index, function: { arguments: letter } }] })])),
          ]),
          chunk([delta({}, 'tool_calls')]),
        ]
    stream(answer, ...parts, chunk([], { usage: USAGE }), DONE)
    answer.end()
  }
}

/** The second request brings the first turn back as the model gave it. */
function checkReplay(t: Test, upstream: FakeUpstream, calls: number): void {
  const messages = upstream.requests.at(-1)!.body['messages'] as Loose[]
  const turn = messages.findLastIndex(({ role }) => role === 'assistant')
  t.equal(messages[turn].reasoning_content, THOUGHT)
  t.equal(messages[turn].tool_calls.length, calls)
  t.same(messages[turn].tool_calls.map((call: Loose) => [call.id, call.extra_content]), Array.from({ length: calls }, (_, n) => [`${VENDOR}:${n}`, SIGNATURE]))
  t.same(messages.slice(turn + 1).map(({ role, tool_call_id: id }) => [role, id]), Array.from({ length: calls }, (_, n) => ['tool', `${VENDOR}:${n}`]))
}

t.test('Codex runs parallel tools over a chat upstream and gives it its reasoning and signatures back', { timeout: 600_000 }, async (t) => {
  const path = need(t, 'codex')
  if (path === null) return
  const calls = ['one', 'two'].map((name) => ({ name: 'exec_command', arguments: JSON.stringify({ cmd: `echo ${name} > ${name}.txt` }) }))
  const { upstream, program, folder, key } = await setUp(t, 'chat', chatModel(calls))
  const before = await used(program, key)
  const { work, code, events, stderr } = await codex(path, folder, `${program.url}/v1`, key, 'Do it')
  t.equal(code, 0, stderr)
  t.equal(await readFile(join(work, 'one.txt'), 'utf8'), 'one\n')
  t.equal(await readFile(join(work, 'two.txt'), 'utf8'), 'two\n')
  t.match(events.find(({ item }) => (item as Loose)?.type === 'agent_message'), { item: { text: 'Done.' } })
  checkReplay(t, upstream, 2)
  t.equal(upstream.requests[0]!.path, '/v1/chat/completions')
  t.equal((await used(program, key)).session - before.session, 2 * 25, 'two answers at their reported usage')
  t.notOk(JSON.stringify(events).includes(VENDOR))
})

t.test('the OpenAI SDK replays a turn on both endpoints over a chat upstream', { timeout: 600_000 }, async (t) => {
  const path = need(t, 'openai-node')
  if (path === null) return
  const { default: OpenAI } = await import(pathToFileURL(path).href)
  const { upstream, program, key } = await setUp(t, 'chat', chatModel([{ name: 'f', arguments: '{"a":1}' }, { name: 'f', arguments: '{"a":2}' }]))
  const client = new OpenAI({ baseURL: `${program.url}/v1`, apiKey: key })
  const request = { model: 'svc-code', input: [{ role: 'user', content: 'Do it' }], tools: [{ type: 'function', name: 'f', parameters: {}, strict: false }] }
  for (const streamed of [false, true]) {
    const { output } = streamed ? await client.responses.stream(request).finalResponse() : await client.responses.create(request)
    t.match(output, [{ type: 'reasoning', content: [{ text: THOUGHT }] }, { type: 'function_call', arguments: '{"a":1}' }, { type: 'function_call', arguments: '{"a":2}' }])
    const results = output.slice(1).map((call: Loose) => ({ type: 'function_call_output', call_id: call.call_id, output: 'ok' }))
    const input = [...request.input, ...output, ...results]
    const done = streamed ? await client.responses.stream({ ...request, input }).finalResponse() : await client.responses.create({ ...request, input })
    t.equal(done.output_text, 'Done.')
    checkReplay(t, upstream, 2)
    t.notOk(JSON.stringify([output, done]).includes(VENDOR))
  }
  const asked = { model: 'svc-code', messages: [{ role: 'user', content: 'Do it' }], tools: [{ type: 'function', function: { name: 'f', parameters: {} } }] }
  const { choices: [{ message: turn }] } = await client.chat.completions.create(asked)
  const results = turn.tool_calls.map((call: Loose) => ({ role: 'tool', tool_call_id: call.id, content: 'ok' }))
  await client.chat.completions.create({ ...asked, messages: [...asked.messages, turn, ...results] })
  checkReplay(t, upstream, 2)
})

const place = (index: number) => ({ item_id: `${VENDOR}_${index}`, output_index: index })

/** A reasoning model on the Responses wire. */
const responsesModel: Script = (answer, { body }) => {
  const input = body['input'] as Loose[]
  const last = input.at(-1).type === 'function_call_output'
  const reasoning = { id: `rs_${VENDOR}`, type: 'reasoning', summary: [], encrypted_content: `${VENDOR}-encrypted` }
  const call = { id: `fc_${VENDOR}`, type: 'function_call', status: 'completed', call_id: `${VENDOR}|1`, name: 'f', arguments: '{"a":1}' }
  const output = last ? [message('Done.')] : [reasoning, call]
  if (!body['stream']) return respond(answer, 200, response('completed', output))
  const items = last
    ? [event('response.output_text.delta', { ...place(0), content_index: 0, delta: 'Done.' })]
    : [
        event('response.output_item.done', { output_index: 0, item: reasoning }),
        event('response.output_item.added', { output_index: 1, item: { ...call, arguments: '' } }),
        event('response.function_call_arguments.delta', { ...place(1), delta: '{"a":1}' }),
        event('response.output_item.done', { output_index: 1, item: call }),
      ]
  stream(answer, event('response.created', { response: response('in_progress') }), ...items, event('response.completed', { response: response('completed', output) }))
  answer.end()
}

t.test('the OpenAI SDK replays a turn of chat over a Responses upstream, encrypted reasoning included', { timeout: 600_000 }, async (t) => {
  const path = need(t, 'openai-node')
  if (path === null) return
  const { default: OpenAI } = await import(pathToFileURL(path).href)
  const { upstream, program, key } = await setUp(t, 'responses', responsesModel)
  const client = new OpenAI({ baseURL: `${program.url}/v1`, apiKey: key })
  const asked = { model: 'svc-code', reasoning_effort: 'low', messages: [{ role: 'user', content: 'Do it' }], tools: [{ type: 'function', function: { name: 'f', parameters: {} } }] }
  const before = await used(program, key)
  const { choices: [{ message: turn }] } = await client.chat.completions.create(asked)
  const result = { role: 'tool', tool_call_id: turn.tool_calls[0].id, content: 'ok' }
  const messages = [...asked.messages, turn, result]
  const done = await client.chat.completions.create({ ...asked, messages })
  t.equal(done.choices[0].message.content, 'Done.')
  t.same((upstream.requests.at(-1)!.body['input'] as Loose[]).slice(1), [
    { type: 'reasoning', id: `rs_${VENDOR}`, summary: [], encrypted_content: `${VENDOR}-encrypted` },
    { type: 'function_call', call_id: `${VENDOR}|1`, name: 'f', arguments: '{"a":1}' },
    { type: 'function_call_output', call_id: `${VENDOR}|1`, output: 'ok' },
  ])
  const streamed = await client.chat.completions.stream({ ...asked, stream_options: { include_usage: true } }).finalChatCompletion()
  t.match(streamed.choices[0], { finish_reason: 'tool_calls', message: { tool_calls: [{ function: { name: 'f', arguments: '{"a":1}' } }] } })
  t.equal(streamed.usage.total_tokens, RESPONSE_USAGE.total_tokens)
  t.notOk(JSON.stringify([turn, done, streamed]).includes(VENDOR))
  t.equal((await used(program, key)).session - before.session, 3 * RESPONSE_USAGE.total_tokens)
})
