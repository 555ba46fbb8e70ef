/** Answers of the fake model on both wires: what a real server sends for a short text, its tokens numbered. */

/** `answer`: the JSON answer. `stream`: the events of a streamed one with so many tokens. */
export type ModelWire = { path: string; answer: Buffer; stream(tokens: number): Buffer[] }

const NAME = 'bench-model'
const CREATED = 1_700_000_000
const TEXT = 'The answer is forty-two. '.repeat(40)
const TOKENS = 100

const sse = (value: object, name = ''): Buffer => Buffer.from(`${name === '' ? '' : `event: ${name}\n`}data: ${JSON.stringify(value)}\n\n`)
const words = (tokens: number): string[] => Array.from({ length: tokens }, (_, n) => ` word${n}`)

/** A word of a stream is two tokens: where a model reports far less than there is, Tollgate counts the tokens itself. */
const tokensOf = (words: number): number => 2 * words
const chatUsage = (tokens: number) => ({ prompt_tokens: 500, completion_tokens: tokens, total_tokens: 500 + tokens })
const chunk = (content: object): Buffer => sse({ id: 'chatcmpl-bench', object: 'chat.completion.chunk', created: CREATED, model: NAME, ...content })
const delta = (part: object, finish: string | null = null): Buffer => chunk({ choices: [{ index: 0, delta: part, logprobs: null, finish_reason: finish }] })

export const CHAT: ModelWire = {
  path: '/chat/completions',
  answer: Buffer.from(
    JSON.stringify({
      id: 'chatcmpl-bench',
      object: 'chat.completion',
      created: CREATED,
      model: NAME,
      choices: [{ index: 0, message: { role: 'assistant', content: TEXT }, logprobs: null, finish_reason: 'stop' }],
      usage: chatUsage(TOKENS),
    }),
  ),
  stream: (tokens) => [
    delta({ role: 'assistant', content: '' }),
    ...words(tokens).map((content) => delta({ content })),
    delta({}, 'stop'),
    chunk({ choices: [], usage: chatUsage(tokensOf(tokens)) }),
    Buffer.from('data: [DONE]\n\n'),
  ],
}

const responsesUsage = (tokens: number) => ({
  input_tokens: 500,
  input_tokens_details: { cached_tokens: 0, cache_write_tokens: 0 },
  output_tokens: tokens,
  output_tokens_details: { reasoning_tokens: 0 },
  total_tokens: 500 + tokens,
})
const part = (text: string): object => ({ type: 'output_text', text, annotations: [], logprobs: [] })
const item = (text: string, status: string): object => ({ id: 'msg_bench', type: 'message', role: 'assistant', status, content: text === '' ? [] : [part(text)] })
const response = (status: string, output: object[], usage: object | null): object => ({
  id: 'resp_bench', object: 'response', created_at: CREATED, status, error: null, incomplete_details: null, instructions: null, max_output_tokens: null, model: NAME,
  output, parallel_tool_calls: true, temperature: 1, tool_choice: 'auto', tools: [], top_p: 1, usage, metadata: {},
})

export const RESPONSES: ModelWire = {
  path: '/responses',
  answer: Buffer.from(JSON.stringify(response('completed', [item(TEXT, 'completed')], responsesUsage(TOKENS)))),
  stream(tokens) {
    const texts = words(tokens)
    const whole = texts.join('')
    const place = { item_id: 'msg_bench', output_index: 0, content_index: 0 }
    const events = [
      { type: 'response.created', response: response('in_progress', [], null) },
      { type: 'response.in_progress', response: response('in_progress', [], null) },
      { type: 'response.output_item.added', output_index: 0, item: item('', 'in_progress') },
      { type: 'response.content_part.added', ...place, part: part('') },
      ...texts.map((text) => ({ type: 'response.output_text.delta', ...place, delta: text, logprobs: [] })),
      { type: 'response.output_text.done', ...place, text: whole, logprobs: [] },
      { type: 'response.content_part.done', ...place, part: part(whole) },
      { type: 'response.output_item.done', output_index: 0, item: item(whole, 'completed') },
      { type: 'response.completed', response: response('completed', [item(whole, 'completed')], responsesUsage(tokensOf(tokens))) },
    ]
    return events.map((event, sequence) => sse({ ...event, sequence_number: sequence }, event.type))
  },
}
