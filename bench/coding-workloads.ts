/** Kinds of coding requests that the benchmarks send. */
import type { Expected } from './load.ts'
import { agentBytes, bursts, chatBytes, LARGE_PROMPT_BYTES, RESPONSE_END, responsesBytes, STREAM_END } from './requests.ts'

/** `upstream`: the wires that the model is declared to speak. `compared`: what the pass-through is sent, where that is another request. */
export type Workload = { name: string; upstream: 'chat' | 'both'; bytes(key: string): Buffer; expected: Expected; compared?: Pick<Workload, 'bytes' | 'expected'> }

const JSON_ANSWER = { status: 200, end: '}' }
const CHAT_STREAM = { status: 200, end: STREAM_END }
const RESPONSE_STREAM = { status: 200, end: RESPONSE_END }
/** A short answer, and a long one. */
const [SHORT, LONG] = [bursts(20), bursts(300)]
const [chatJson, chatStream, longChatStream]: [Workload, Workload, Workload] = [
  { name: 'chat, JSON', upstream: 'both', bytes: (key) => chatBytes(key, { stream: false }), expected: JSON_ANSWER },
  { name: 'chat, 20 tokens in bursts', upstream: 'both', bytes: (key) => chatBytes(key, { stream: true, mark: SHORT }), expected: CHAT_STREAM },
  { name: 'chat, 300 tokens in bursts', upstream: 'both', bytes: (key) => chatBytes(key, { stream: true, mark: LONG }), expected: CHAT_STREAM },
]

export const WORKLOADS: [Workload, ...Workload[]] = [
  chatJson,
  chatStream,
  longChatStream,
  { name: 'chat, 100 tokens one by one', upstream: 'both', bytes: (key) => chatBytes(key, { stream: true }), expected: CHAT_STREAM },
  { name: 'responses, JSON', upstream: 'both', bytes: (key) => responsesBytes(key, { stream: false }), expected: JSON_ANSWER },
  { name: 'responses, 20 tokens in bursts', upstream: 'both', bytes: (key) => responsesBytes(key, { stream: true, mark: SHORT }), expected: RESPONSE_STREAM },
  { name: '40 KB prompt, JSON', upstream: 'both', bytes: (key) => chatBytes(key, { stream: false, size: LARGE_PROMPT_BYTES }), expected: JSON_ANSWER },
  { name: '40 KB prompt, 20 tokens in bursts', upstream: 'both', bytes: (key) => chatBytes(key, { stream: true, mark: SHORT, size: LARGE_PROMPT_BYTES }), expected: CHAT_STREAM },
  { name: "an agent's turn, 300 tokens in bursts", upstream: 'both', bytes: (key) => agentBytes(key, LONG), expected: CHAT_STREAM },
  { name: 'translated, JSON', upstream: 'chat', bytes: (key) => responsesBytes(key, { stream: false }), expected: JSON_ANSWER, compared: chatJson },
  {
    name: 'translated, 20 tokens in bursts',
    upstream: 'chat',
    bytes: (key) => responsesBytes(key, { stream: true, mark: SHORT }),
    expected: RESPONSE_STREAM,
    compared: chatStream,
  },
  {
    name: 'translated, 300 tokens in bursts',
    upstream: 'chat',
    bytes: (key) => responsesBytes(key, { stream: true, mark: LONG }),
    expected: RESPONSE_STREAM,
    compared: longChatStream,
  },
]
