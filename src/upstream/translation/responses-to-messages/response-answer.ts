/** The answer of a Messages upstream, as JSON and as a stream, in the form in which a Responses upstream would have sent it. */
import { isMembers, type Members } from '../../wires/allowlist.ts'
import { inclusiveUsage, openStreamUsage } from '../../wires/messages/message-usage.ts'
import { FIRST, responseEvent } from '../../wires/responses/responses-stream.ts'
import { BadAnswer, type StreamRewriter } from '../../wires/wire.ts'
import { openStreamRewriter } from '../../sse/stream-rewriter.ts'
import { OWN_MARKS } from '../../sse/event-template.ts'
import type { TemplateSets } from '../../sse/event-templates.ts'
import { readUsage } from '../../usage/reported-usage.ts'
import { openContinuedText, textOfSlice } from '../continued-text.ts'
import type { ChatTools } from '../responses-to-chat/chat-tools.ts'
import { openResponseBlocks, type ResponseBlocks } from './response-blocks.ts'

/** Reasons of an answer that is whole. Any other one cut it off: an unknown reason is never told as success. */
const COMPLETED = ['end_turn', 'stop_sequence', 'tool_use', 'pause_turn']

/** The JSON answer as a response, or the failure that it reports in the form of one. Throws `BadAnswer` for what is neither. */
export function responseFor(value: unknown, tools: ChatTools): Members {
  if (isMembers(value) && isMembers(value['error'])) return { status: 'failed', error: value['error'], output: [] }
  if (!isMembers(value) || !Array.isArray(value['content'])) throw new BadAnswer('the answer is not a message')
  const blocks = openResponseBlocks(String(value['id']), tools, () => {})
  for (const [index, block] of (value['content'] as unknown[]).entries()) if (isMembers(block)) blocks.start(index, block)
  return responseWith(value['id'], blocks, value['stop_reason'] ?? 'end_turn', inclusiveUsage(value['usage']))
}

function responseWith(id: unknown, blocks: ResponseBlocks, reason: unknown, usage: Members | null): Members {
  const isWhole = COMPLETED.includes(String(reason))
  return {
    id,
    object: 'response',
    status: isWhole ? 'completed' : 'incomplete',
    incomplete_details: isWhole ? null : { reason: reason === 'refusal' ? 'content_filter' : 'max_output_tokens' },
    output: blocks.finish(),
    usage,
  }
}

/** Passes the stream on to the rewriter of a Responses stream, event by event. */
export function openMessagesRewriter(responses: StreamRewriter, tools: ChatTools, sets: TemplateSets = new Map()): StreamRewriter {
  let rewritten = ''
  const pass = (bytes: string) => (rewritten += responses.push(Buffer.from(bytes, 'latin1')))
  const emit = (event: Members) => {
    continued.became(event)
    pass(responseEvent(event))
  }
  let blocks: ResponseBlocks | null = null
  let id: unknown = null
  let reason: unknown = null
  const usage = openStreamUsage()
  const continued = openContinuedText(sets, 'messages', 'responses', {
    mark: (event) => ({ ...event, item_id: OWN_MARKS.id }),
    own: (_name, { item_id: itemId }) => JSON.stringify(itemId),
    grow: (slice) => blocks?.grow(textOfSlice(slice)),
  })

  function begin(message: Members): ResponseBlocks {
    id = message['id']
    usage.begun(message['usage'])
    for (const type of FIRST) emit({ type, response: { id, status: 'in_progress', output: [] } })
    return (blocks = openResponseBlocks(String(id), tools, emit))
  }

  function read(event: Members, type: unknown): void {
    if (type === 'error' || (type === undefined && event['error'])) return void emit({ type: 'error', error: event['error'] })
    if (type === 'ping' || typeof type !== 'string') return
    const known = blocks ?? begin(isMembers(event['message']) ? event['message'] : {})
    const index = event['index']
    if (type === 'content_block_start' && isMembers(event['content_block'])) known.start(index, event['content_block'])
    if (type === 'content_block_delta' && isMembers(event['delta'])) known.delta(index, event['delta'])
    if (type === 'content_block_stop') known.stop(index)
    if (type === 'message_delta') {
      usage.told(event['usage'])
      if (isMembers(event['delta'])) reason = event['delta']['stop_reason'] ?? reason
    }
    if (type === 'message_stop') {
      const response = responseWith(id, known, reason ?? 'end_turn', usage.whole())
      emit({ type: `response.${String(response['status'])}`, response })
    }
  }

  function parse(data: string, name: string): void {
    const event = continued.parse(data)
    read(event, event['type'] ?? (name === '' ? undefined : name))
    continued.learn(data, event)
  }

  const rewriter = openStreamRewriter((data, name, output) => {
    if (data === '[DONE]') return
    rewritten = ''
    try {
      const translated = continued.rewrite(data)
      if (translated === null) parse(data, name)
      else pass(translated)
    } finally {
      output.write(rewritten)
    }
    const phase = responses.phase()
    if (phase.name === 'done') output.done(phase.cutsOff)
    else if (phase.name === 'broken') output.fail(phase.failure)
    else if (phase.answer === 'stopped') output.readOn(0)
    else output.answer(reason === null ? phase.answer : 'complete')
  })
  const { push, end, phase } = rewriter
  return { ...responses, push, end, phase, usage: () => readUsage(usage.soFar()) }
}
