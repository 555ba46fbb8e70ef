/** Requests of the benchmarks, as the bytes on the wire. */

/** In a prompt: the model sends one event and then stays silent. */
export const IDLE = 'bench:idle'
/** In a prompt: the model sends fewer events, with pauses between them. */
export const PACED = 'bench:paced'

/** About the size of a question with some code. */
const PROMPT_BYTES = 2048

/** The end of a complete streamed answer. */
export const STREAM_END = 'data: [DONE]'

export type Ask = { path: string; key: string; body: object }

/** A POST with a JSON body and keep-alive. */
export function postBytes({ path, key, body }: Ask): Buffer {
  const json = JSON.stringify(body)
  const head = `POST ${path} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(json)}\r\n\r\n`
  return Buffer.from(head + json)
}

/** The end of a complete streamed response: its usage and its sequence number. */
export const RESPONSE_END = '"total_tokens":600}},"sequence_number":'

const INSTRUCTIONS = 'You answer questions about code.'
const promptOf = (mark: string) => `${mark} ${'Why does this function answer twice? '.repeat(Math.ceil(PROMPT_BYTES / 37))}`.slice(0, PROMPT_BYTES)

/** A chat request. `mark` is put into the prompt. */
export function chatBytes(key: string, stream: boolean, mark = ''): Buffer {
  const messages = [{ role: 'system', content: INSTRUCTIONS }, { role: 'user', content: promptOf(mark) }]
  return postBytes({ path: '/v1/chat/completions', key, body: { model: 'svc-code', messages, max_tokens: 256, ...(stream ? { stream: true } : {}) } })
}

/** The same request on the Responses wire, which the gateway translates for the model. */
export function responsesBytes(key: string, stream: boolean): Buffer {
  const body = { model: 'svc-code', instructions: INSTRUCTIONS, input: promptOf(''), max_output_tokens: 256, ...(stream ? { stream: true } : {}) }
  return postBytes({ path: '/v1/responses', key, body })
}

export function imageBytes(key: string): Buffer {
  return postBytes({ path: '/api/v1/generations', key, body: { kind: 'image', prompt: 'A lighthouse at dawn' } })
}
