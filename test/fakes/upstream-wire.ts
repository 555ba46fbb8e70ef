/** Answers of upstreams on both wires, with a vendor's name in every place where a vendor may put it. */

/** Must not occur in anything that a client gets. */
export const VENDOR = 'acmeai'

export const chunk = (choices: object[], more: object = {}) => {
  const names = { id: `${VENDOR}-gen-1`, provider: VENDOR, model: `${VENDOR}/large`, system_fingerprint: `fp_${VENDOR}` }
  return `data: ${JSON.stringify({ ...names, object: 'chat.completion.chunk', created: 1_700_000_000, choices, ...more })}\n\n`
}

export const delta = (members: object, reason: string | null = null, index = 0) => ({
  index,
  delta: members,
  logprobs: null,
  finish_reason: reason,
  native_finish_reason: VENDOR,
})

export const USAGE = {
  prompt_tokens: 20,
  completion_tokens: 5,
  total_tokens: 25,
  prompt_tokens_details: { cached_tokens: 8 },
  cost_by: VENDOR,
}
export const DONE = 'data: [DONE]\n\n'

/** A stream of these texts, with usage and `[DONE]`. */
export function chatStream(...texts: string[]): string[] {
  return [
    `: ${VENDOR} is thinking\n\n`,
    chunk([delta({ role: 'assistant', content: '' })]),
    ...texts.map((content) => chunk([delta({ content })])),
    chunk([delta({}, 'stop')]),
    chunk([], { usage: USAGE }),
    DONE,
  ]
}

export const completion = (content: string, more: object = {}) => ({
  id: `${VENDOR}-gen-1`,
  provider: VENDOR,
  object: 'chat.completion',
  created: 1_700_000_000,
  model: `${VENDOR}/large`,
  system_fingerprint: `fp_${VENDOR}`,
  choices: [
    {
      index: 0,
      message: { role: 'assistant', content, refusal: null, [VENDOR]: true },
      finish_reason: 'stop',
      native_finish_reason: VENDOR,
    },
  ],
  usage: USAGE,
  ...more,
})

export const RESPONSE_USAGE = {
  input_tokens: 20,
  input_tokens_details: { cached_tokens: 8 },
  output_tokens: 5,
  output_tokens_details: { reasoning_tokens: 2 },
  total_tokens: 25,
  cost_by: VENDOR,
}

export const event = (type: string, members: object = {}) => `event: ${type}\ndata: ${JSON.stringify({ type, ...members })}\n\n`

export const response = (status: string, output: object[] = [], more: object = {}) => ({
  id: `resp_${VENDOR}_1`,
  object: 'response',
  created_at: 1_700_000_000,
  status,
  model: `${VENDOR}-large`,
  billing: { payer: VENDOR },
  output,
  usage: status === 'in_progress' ? null : RESPONSE_USAGE,
  ...more,
})

export const message = (text: string) => ({
  id: `msg_${VENDOR}_1`,
  type: 'message',
  status: 'completed',
  role: 'assistant',
  vendor: VENDOR,
  content: [{ type: 'output_text', text, annotations: [], vendor: VENDOR }],
})

/** A stream of these texts without sequence numbers, with vendor events between the wire's. */
export function responsesStream(...texts: string[]): string[] {
  const place = { item_id: `msg_${VENDOR}_1`, output_index: 0, content_index: 0 }
  const text = texts.join('')
  return [
    event('response.created', { response: response('in_progress') }),
    event(`${VENDOR}.rate_limits`, { limit: 5 }),
    event('response.in_progress', { response: response('in_progress') }),
    event('response.output_item.added', { output_index: 0, item: { ...message(''), status: 'in_progress', content: [] } }),
    event('response.content_part.added', { ...place, part: { type: 'output_text', text: '', annotations: [] } }),
    ...texts.map((words, index) =>
      event('response.output_text.delta', { ...place, delta: words, obfuscation: 'x'.repeat(index + 1), vendor: VENDOR }),
    ),
    event('response.output_text.done', { ...place, text }),
    event('response.content_part.done', { ...place, part: { type: 'output_text', text, annotations: [] } }),
    event('response.output_item.done', { output_index: 0, item: message(text) }),
    event('response.completed', { response: response('completed', [message(text)]) }),
    DONE,
  ]
}
