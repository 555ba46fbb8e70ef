/** Requests of the benchmarks, as the bytes on the wire. */

/** In a prompt: the model sends one event and then stays silent. */
export const IDLE = 'bench:idle'
/** In a prompt: the model sends fewer events, with pauses between them. */
export const PACED = 'bench:paced'
/** In a prompt: the same, and the answer begins only after a while, as those of models do. */
export const THINKING = 'bench:thinking'
/** In a prompt, with a number of tokens: the model sends that many, 1 to 4 events in a write. */
export const BURSTS = /bench:bursts:(\d+)/
export const bursts = (tokens: number): string => `bench:bursts:${tokens}`

/** About the size of a question with some code. */
const PROMPT_BYTES = 2048
/** A question with some files. */
export const LARGE_PROMPT_BYTES = 40 * 1024

/** The end of a complete streamed answer. */
export const STREAM_END = 'data: [DONE]'

export type Ask = { path: string; key: string; body: object }

/** A POST with a JSON body and keep-alive. */
export function postBytes({ path, key, body }: Ask): Buffer {
  const json = JSON.stringify(body)
  const head = `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n`
  return Buffer.from(head + json)
}

/** The end of a complete streamed response, and of one through the gateway, which numbers its events last. */
export const RESPONSE_END = '"total_tokens":'

const INSTRUCTIONS = 'You answer questions about code.'
const promptOf = (mark: string, size: number) => `${mark} ${'Why does this function answer twice? '.repeat(Math.ceil(size / 37))}`.slice(0, size)

export type Prompt = { stream: boolean; mark?: string; size?: number }

/** A chat request. `mark` is put into the prompt, which has `size` bytes. */
export function chatBytes(key: string, { stream, mark = '', size = PROMPT_BYTES }: Prompt): Buffer {
  const messages = [{ role: 'system', content: INSTRUCTIONS }, { role: 'user', content: promptOf(mark, size) }]
  return postBytes({ path: '/v1/chat/completions', key, body: { model: 'svc-code', messages, max_tokens: 256, ...(stream ? { stream: true } : {}) } })
}

/** The same request on the Responses wire. */
export function responsesBytes(key: string, { stream, mark = '', size = PROMPT_BYTES }: Prompt): Buffer {
  const body = { model: 'svc-code', instructions: INSTRUCTIONS, input: promptOf(mark, size), max_output_tokens: 256, ...(stream ? { stream: true } : {}) }
  return postBytes({ path: '/v1/responses', key, body })
}

/** One turn of an agent: a system prompt, 30 tool calls with their results, and 12 tools. */
export function agentBytes(key: string, mark: string): Buffer {
  const calls = Array.from({ length: 30 }, (_, n) => `call_${String(n).padStart(32, 'a')}`)
  const messages = calls.flatMap((id) => [
    { role: 'assistant', content: null, tool_calls: [{ id, type: 'function', function: { name: 'read', arguments: '{"path":"src/main.ts"}' } }] },
    { role: 'tool', tool_call_id: id, content: 'text '.repeat(100) },
  ])
  const parameters = { type: 'object', properties: { path: { type: 'string', description: 'text '.repeat(40) } } }
  const tools = Array.from({ length: 12 }, (_, n) => ({ type: 'function', function: { name: `tool${n}`, parameters } }))
  const body = { model: 'svc-code', stream: true, messages: [{ role: 'system', content: `${mark} ${'text '.repeat(800)}` }, ...messages], tools }
  return postBytes({ path: '/v1/chat/completions', key, body })
}

export function imageBytes(key: string): Buffer {
  return postBytes({ path: '/api/v1/generations', key, body: { kind: 'image', prompt: 'A lighthouse at dawn' } })
}
