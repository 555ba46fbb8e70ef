/** Size of a prompt: what the model reads, with images and files at a flat rate where they stand as such. */
import t from 'tap'
import { promptBytes } from '../../src/upstream/usage/prompt-size.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readMessagesRequest } from '../../src/upstream/wires/messages/messages-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import { DOCUMENTED_MEMBERS } from '../../src/upstream/policy/documented-members.ts'
import { WIRES } from '../../src/upstream/wires/wire.ts'
import type { Members } from '../../src/upstream/wires/allowlist.ts'

const NONE: ReadonlySet<string> = new Set()
const LONG = 100_000
const base64 = 'A'.repeat(LONG)
const dataUrl = (type: string) => `data:${type};base64,${base64}`

/** As a route measures it: after the reader. */
function chatBytes(body: Members): number {
  readChatRequest({ model: 'svc-code', ...body }, NONE)
  return promptBytes('chat', body, NONE)
}
function responsesBytes(body: Members): number {
  readResponsesRequest({ model: 'svc-code', ...body }, NONE)
  return promptBytes('responses', body, NONE)
}
function messagesBytes(...content: Members[]): number {
  let size = 0
  const promptTokens = (body: Members) => (size = promptBytes('messages', body, NONE))
  readMessagesRequest({ model: 'svc-code', max_tokens: 1, messages: [{ role: 'user', content }] }, NONE, { betas: [], promptTokens })
  return size
}
const user = (content: unknown): Members => ({ messages: [{ role: 'user', content }] })
const parts = (...content: unknown[]): Members => user(content)

t.test('text is text, also where it looks like a data URL', async (t) => {
  for (const text of [dataUrl('image/png'), `data:;base64,${base64}`, '\u4f60'.repeat(LONG / 3)]) {
    t.ok(chatBytes(user(text)) >= LONG - 1)
    t.ok(chatBytes(parts({ type: 'text', text })) >= LONG - 1)
    t.ok(responsesBytes({ input: text }) >= LONG - 1)
    t.ok(responsesBytes({ input: [{ role: 'user', content: [{ type: 'input_text', text }] }] }) >= LONG - 1)
    t.ok(responsesBytes({ input: [{ type: 'function_call_output', call_id: 'c', output: text }], instructions: text }) >= 2 * LONG - 2)
    t.ok(chatBytes({ ...user('hi'), tools: [{ type: 'function', function: { name: 'f', description: text } }] }) >= LONG - 1)
    t.ok(promptBytes('responses', { input: [{ type: 'image', image_url: 'x', text }] }, NONE) >= LONG - 1, 'an item is no part')
    t.ok(promptBytes('chat', { tools: [{ type: 'function', content: [{ type: 'image_url', text }] }] }, NONE) >= LONG - 1)
  }
})

t.test('an image counts at a flat rate, a file or a sound by its size at that rate, and a file of text as its text', async (t) => {
  const images: [string, Members, (body: Members) => number][] = [
    ['object', parts({ type: 'image_url', image_url: { url: dataUrl('image/png') } }), chatBytes],
    ['string', parts({ type: 'image_url', image_url: dataUrl('image/png') }), chatBytes],
    ['responses', { input: [{ role: 'user', content: [{ type: 'input_image', image_url: dataUrl('image/png') }] }] }, responsesBytes],
    ['screenshot', { input: [{ type: 'computer_call_output', call_id: 'c', output: { type: 'computer_screenshot', image_url: dataUrl('image/png') } }] }, responsesBytes],
  ]
  for (const [name, body, bytes] of images) t.ok(bytes(body) >= 4096 && bytes(body) < 4096 + 100, name)
  for (const [type, expected] of [['application/pdf', 2 * 4096], ['text/plain', (LONG * 3) / 4], ['application/json', (LONG * 3) / 4]] as const) {
    const chat = chatBytes(parts({ type: 'file', file: { filename: 'a', file_data: dataUrl(type) } }))
    const responses = responsesBytes({ input: [{ role: 'user', content: [{ type: 'input_file', filename: 'a', file_data: dataUrl(type) }] }] })
    for (const bytes of [chat, responses]) t.ok(bytes >= expected && bytes < expected + 4096 + 200, `${type}: ${bytes}`)
  }
  const sound = chatBytes(parts({ type: 'input_audio', input_audio: { data: base64, format: 'wav' } }))
  t.ok(sound >= 2 * 4096 && sound < 2 * 4096 + 200, String(sound))
})

t.test('what no model reads does not count: undocumented members, hosted tools, metadata', async (t) => {
  const plain = chatBytes(user('hi'))
  const padding = 'x'.repeat(LONG)
  t.equal(chatBytes({ ...user('hi'), padding, metadata: { a: padding }, user: padding, prompt_cache_key: padding }), plain)
  t.equal(chatBytes({ messages: [{ role: 'user', content: 'hi', padding }] }), plain)
  t.ok(chatBytes(parts({ type: 'text', text: 'hi', padding })) < plain + 100)
  t.ok(chatBytes({ ...user('hi'), tools: [{ type: 'web_search', padding }] }) < plain + 10)
  t.ok(promptBytes('chat', { ...user('hi'), tools: [{ type: 'web_search', padding }] }, new Set(['tool:web_search'])) > LONG)
})

t.test('a tool that is loaded later counts once a search of the client has found it', async (t) => {
  const tools = ['first', 'second'].map((name) => ({ name, description: 'x'.repeat(LONG), input_schema: { type: 'object' }, defer_loading: true }))
  const found = { type: 'tool_result', tool_use_id: 'a', content: [{ type: 'tool_reference', tool_name: 'second' }] }
  const bytes = (...content: Members[]) => promptBytes('messages', { tools, messages: [{ role: 'user', content }] }, NONE)
  t.ok(bytes() < 100)
  t.ok(bytes(found) >= LONG && bytes(found) < LONG + 400)
  const sent = { name: 'third', description: 'x'.repeat(LONG), input_schema: { type: 'object' } }
  const removal = { role: 'system', content: [{ type: 'tool_removal', tool: { name: 'third' } }] }
  t.ok(promptBytes('messages', { tools: [...tools, sent, sent], messages: [removal] }, NONE) >= 2 * LONG, 'each other tool is sent, whatever takes it away')
})

/** Documented members that say how to answer, or name somebody; no model reads them. */
const UNREAD = `audio cache_control enable_thinking frequency_penalty function_call include logit_bias logprobs max_completion_tokens max_output_tokens max_tokens max_tool_calls
  metadata modalities n parallel_tool_calls presence_penalty prompt_cache_key prompt_cache_options prompt_cache_retention reasoning reasoning_effort safety_identifier seed service_tier stop
  stop_sequences store stream stream_options temperature thinking tool_choice top_k top_logprobs top_p truncation user verbosity web_search_options`.split(/\s+/)

t.test('every documented member that a model reads counts, on each wire', async (t) => {
  for (const wire of WIRES) {
    const value = { type: wire === 'messages' ? 'custom' : 'function', description: 'x'.repeat(LONG) }
    for (const name of DOCUMENTED_MEMBERS[wire]) {
      const bytes = promptBytes(wire, { [name]: name === 'tools' ? [value] : value }, NONE)
      t.equal(bytes > LONG, !UNREAD.includes(name), `${wire}: ${name}`)
    }
  }
})

t.test('a document of the Messages wire counts as what its source is: text, parts or a file; with its title and context', async (t) => {
  const text = 'word '.repeat(LONG / 5)
  const document = (source: object, more: object = {}) => ({ type: 'document', source, ...more })
  const pdf = document({ type: 'base64', media_type: 'application/pdf', data: base64 })
  const asText = document({ type: 'text', media_type: 'text/plain', data: text })
  const cases: [string, Members, number][] = [
    ['text', asText, LONG],
    ['in the result of a tool', { type: 'tool_result', tool_use_id: 'a', content: [asText] }, LONG],
    ['a string', document({ type: 'content', content: text }), LONG],
    ['parts', document({ type: 'content', content: [{ type: 'text', text }, { type: 'text', text }] }), 2 * LONG],
    ['an image among parts', document({ type: 'content', content: [{ type: 'image', source: { type: 'base64', media_type: 'image/png', data: base64 } }] }), 4096],
    ['a file', pdf, 2 * 4096],
    ['a file of text', document({ type: 'base64', media_type: 'text/plain', data: base64 }), (LONG * 3) / 4],
    ['an address', document({ type: 'url', url: 'https://a.test/b.pdf' }), 4096],
    ['title', { ...pdf, title: text }, LONG + 2 * 4096],
    ['context', { ...pdf, context: text }, LONG + 2 * 4096],
  ]
  for (const [name, block, expected] of cases) {
    const bytes = messagesBytes(block)
    t.ok(bytes >= expected && bytes < expected + 4096 + 300, `${name}: ${bytes}`)
  }
})
