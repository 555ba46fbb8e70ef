/** Answers of an upstream of the other wire, translated without a server. */
import { openIds } from '../../src/upstream/wires/encrypted-ids.ts'
import { readChatRequest } from '../../src/upstream/wires/chat/chat-request.ts'
import { readResponsesRequest } from '../../src/upstream/wires/responses/responses-request.ts'
import type { StreamRewriter, UpstreamCall, WireName } from '../../src/upstream/wires/wire.ts'
import { dataOf, type Loose } from './gateway.ts'

const open = openIds([Buffer.alloc(48, 1)], () => '02020202-0202-4202-8202-020202020202')
/** The ids of a request: an id keeps the first prefix in it, which differs between OpenAI's wires and Messages. */
export const openRequestIds = () => open('acme/first')
export const ids = openRequestIds()

/** A call of this client's wire to an upstream of the other one. */
export function callOf(client: WireName, more: object = {}): UpstreamCall {
  const request =
    client === 'chat'
      ? readChatRequest({ model: 'svc-code', messages: [{ role: 'user', content: 'Hi' }], stream_options: { include_usage: true }, ...more }, new Set())
      : readResponsesRequest({ model: 'svc-code', input: 'Hi', tools: TOOLS, ...more }, new Set())
  return request.call(100, ids, () => 1000, [client === 'chat' ? 'responses' : 'chat'])
}

export const ESTIMATE = { input: 7, cachedInput: 0, output: 3 }

export const TOOLS = [
  { type: 'function', name: 'read', parameters: {}, strict: false },
  { type: 'custom', name: 'patch' },
  { type: 'namespace', name: 'files', description: 'Files', tools: [{ type: 'function', name: 'list', parameters: {}, strict: false }] },
]

export function rewrite(stream: StreamRewriter, pieces: Iterable<Buffer>): string {
  let rewritten = ''
  for (const piece of pieces) rewritten += stream.push(piece)
  rewritten += stream.end()
  const phase = stream.phase()
  rewritten += phase.name === 'broken' ? stream.fail(phase.failure) : stream.terminalEvents(ESTIMATE)
  return Buffer.from(rewritten, 'latin1').toString('utf8')
}

export const whole = (client: WireName, text: string, more: object = {}) => rewrite(callOf(client, more).openRewriter(), [Buffer.from(text)])
export const json = (client: WireName, answer: object, more: object = {}): Loose => JSON.parse(callOf(client, more).rewriteJson(answer).body(ESTIMATE))

/** What a chat client assembles from the chunks. */
export function assembled(text: string): Loose {
  const chunks = dataOf(text)
  if (chunks.pop() !== '[DONE]') throw new Error('the stream did not end')
  const usage = chunks.pop().usage
  const built: Loose = { content: '', reasoning_content: '', calls: [], details: [], annotations: [], reasons: [], usage }
  for (const { choices } of chunks) {
    const [{ delta: one, finish_reason: reason }] = choices
    built.content += one.content ?? ''
    built.reasoning_content += one.reasoning_content ?? ''
    built.details.push(...(one.reasoning_details ?? []))
    built.annotations.push(...(one.annotations ?? []))
    if (reason) built.reasons.push(reason)
    for (const { index, ...call } of one.tool_calls ?? []) {
      built.calls[index] ??= { ...call, text: '' }
      built.calls[index].text += call.function?.arguments ?? call.custom?.input
    }
  }
  return built
}

/** A small generator of pseudo-random numbers in [0, 1), so that a failing seed can be repeated (mulberry32). */
export function randomOf(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296
  }
}
