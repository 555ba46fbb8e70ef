/** A Responses request at an upstream of the chat wire: its body, and the answer as a response or as the events of one. */
import type { Failure } from '../../../domain/errors.ts'
import type { Usage } from '../../../domain/token-windows.ts'
import { isMembers, own, type Members } from '../../wires/allowlist.ts'
import { chatErrorIn, usageIn } from '../../wires/chat/chat-stream.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { finishReasonOf, isFailedReason } from '../../wires/chat/finish-reasons.ts'
import { completed, responseOf, translatedMembers, type RepeatedMembers, type Status } from '../../wires/responses/response-object.ts'
import { FIRST, responseEvent } from '../../wires/responses/responses-stream.ts'
import { bodyWriter } from '../../wires/upstream-body.ts'
import { BadAnswer, type JsonAnswer, type StreamRewriter, type UpstreamCall } from '../../wires/wire.ts'
import { openStreamRewriter, overloaded, type RewriterOutput } from '../../sse/stream-rewriter.ts'
import { OWN_MARKS } from '../../sse/event-template.ts'
import type { TemplateSets } from '../../sse/event-templates.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { estimatedResponseUsage, readUsage } from '../../usage/reported-usage.ts'
import { chatMessages } from './chat-messages.ts'
import { chatToolMembers, chatTools, toolsOf, type ChatTools } from './chat-tools.ts'
import { openContinuedText, textOfSlice } from '../continued-text.ts'
import { openResponseOutput } from './response-output.ts'
import { refuseLostTools } from '../lost-tools.ts'
import { addShared } from '../shared-members.ts'
import { unsupported } from '../unsupported-parameter.ts'

type Context = { ids: Ids; now: () => number; repeated: RepeatedMembers; tools: ChatTools }

/** `limit`: output tokens; `now`: epoch seconds. Throws `unsupported_parameter` for what chat cannot express. */
export function responsesToChat(
  body: Members,
  stream: boolean,
  limit: number,
  repeated: RepeatedMembers,
  ids: Ids,
  now: () => number,
): UpstreamCall {
  const given = toolsOf(body)
  refuseLostTools(given)
  const tools = chatTools(given)
  const sent = { ...chatBody(body, tools, ids), ...(stream ? { stream: true, stream_options: { include_usage: true } } : {}) }
  const context = { ids, now, repeated: translatedMembers(repeated), tools }
  return {
    wire: 'chat',
    stream,
    ...bodyWriter('chat', sent, 'max_completion_tokens', limit, false, ids),
    openRewriter: (templates) => openChatAsResponses(context, templates),
    rewriteJson: (value) => responseAnswer(value, context),
    isTranslation: true,
    translated: null,
  }
}

function chatBody(body: Members, tools: ChatTools, ids: Ids): Members {
  if (isMembers(own(body, 'prompt'))) throw unsupported('prompt')
  const built: Members = { messages: chatMessages(body, tools, ids), ...chatToolMembers(own(body, 'tool_choice'), tools) }
  addShared(body, built)
  if (tools.functions.length > 0 && typeof own(body, 'parallel_tool_calls') === 'boolean')
    built['parallel_tool_calls'] = own(body, 'parallel_tool_calls')
  const effort = own((own(body, 'reasoning') ?? {}) as Members, 'effort')
  if (typeof effort === 'string') built['reasoning_effort'] = effort
  const text = (own(body, 'text') ?? {}) as Members
  if (typeof own(text, 'verbosity') === 'string') built['verbosity'] = own(text, 'verbosity')
  return { ...built, ...formatMembers(own(text, 'format')), ...logprobsMembers(body) }
}

function formatMembers(format: unknown): Members {
  if (!isMembers(format)) return {}
  const { type, ...schema } = format
  if (type === 'json_object') return { response_format: { type } }
  if (type === 'json_schema') return { response_format: { type, json_schema: schema } }
  if (type !== 'text') throw unsupported('text.format')
  return {}
}

function logprobsMembers(body: Members): Members {
  const include = own(body, 'include')
  const top = own(body, 'top_logprobs')
  const included = Array.isArray(include) && include.includes('message.output_text.logprobs')
  const some = typeof top === 'number' && top > 0
  return included || some ? { logprobs: true, ...(some ? { top_logprobs: top } : {}) } : {}
}

/** The status that the finish reason of a choice gives to the response. */
const STATUS: Record<string, { status: Status; reason: string | null }> = {
  length: { status: 'incomplete', reason: 'max_output_tokens' },
  content_filter: { status: 'incomplete', reason: 'content_filter' },
}

/** The last form of the response: `completed` or `incomplete`, with the usage that the upstream reported. */
function finalResponse(
  answer: Members,
  id: string,
  reason: unknown,
  output: Members[],
  usage: unknown,
  { repeated, ids, now }: Context,
): Members {
  const { status, reason: cut } = STATUS[String(reason)] ?? { status: 'completed' as const, reason: null }
  return responseOf(completed({ ...answer, usage, incomplete_details: { reason: cut } }, now), id, status, repeated, ids, output)
}

const itemStatus = (reason: unknown) => (String(reason) in STATUS ? 'incomplete' : 'completed')

function responseAnswer(value: unknown, context: Context): JsonAnswer {
  const [choice] = isMembers(value) && Array.isArray(value['choices']) ? (value['choices'] as unknown[]) : []
  if (!isMembers(value) || !isMembers(choice) || !isMembers(choice['message'])) throw new BadAnswer('the answer is not a chat completion')
  const meter = openMeter()
  const output = openResponseOutput(context.tools, context.ids, meter, () => {})
  if (isFailedReason(choice['finish_reason'])) throw new BadAnswer('the choice ended by a failure')
  const reason = finishReasonOf(choice['finish_reason'])
  output.add(choice['message'], choice['logprobs'])
  output.end(itemStatus(reason))
  const response = finalResponse(tierOf(value), freshId(context), reason, output.items, value['usage'], context)
  const usage = readUsage(value['usage'])
  return { body: (estimate) => JSON.stringify(usage ? response : { ...response, usage: estimatedResponseUsage(estimate) }), usage, meter }
}

/** No request refers to an earlier response, so the upstream's id is not needed again. */
const freshId = ({ ids }: Context) => ids.fresh('resp_')

const tierOf = (value: Members): Members => ({ service_tier: value['service_tier'] })

function openChatAsResponses(context: Context, sets: TemplateSets = new Map()): StreamRewriter {
  const { ids, repeated, tools } = context
  const meter = openMeter()
  let sequence = 0
  let id: string | null = null
  let usage: unknown = null
  let reason: unknown = null
  let tier: Members = {}
  let written: RewriterOutput | null = null
  let terminalEvent: (estimate: Usage) => string = () => ''
  const numbered = (event: Members) => responseEvent({ ...event, sequence_number: sequence++ })
  const output = openResponseOutput(tools, ids, meter, (event) => {
    continued.became(event)
    written?.write(numbered(event))
  })
  const continued = openContinuedText(sets, 'chat', 'responses', {
    mark: (event) => ({ ...event, item_id: OWN_MARKS.id, sequence_number: OWN_MARKS.sequence }),
    own: (name, { item_id: itemId }) => (name === 'sequence' ? String(sequence++) : JSON.stringify(itemId)),
    grow(slice) {
      meter.addEscaped(slice)
      output.grow(textOfSlice(slice))
    },
  })

  const rewriter = openStreamRewriter((data, _name, to) => {
    const rewritten = continued.rewrite(data)
    if (rewritten !== null) return to.write(rewritten)
    written = to
    if (data === '[DONE]') return finish(to)
    const chunk = continued.parse(data)
    const failure = chatErrorIn(chunk)
    if (failure) return to.fail(failure)
    usage = usageIn(chunk) ?? usage
    if (typeof chunk['service_tier'] === 'string') tier = tierOf(chunk)
    for (const choice of Array.isArray(chunk['choices']) ? (chunk['choices'] as unknown[]) : []) if (isMembers(choice)) add(choice, to)
    continued.learn(data, chunk)
  })

  function add(choice: Members, to: RewriterOutput): void {
    if ((choice['index'] ?? 0) !== 0) return
    to.write(begin())
    if (isMembers(choice['delta'])) output.add(choice['delta'], choice['logprobs'])
    if (isFailedReason(choice['finish_reason'])) return to.fail(overloaded('the choice ended by a failure', choice))
    reason = finishReasonOf(choice['finish_reason']) ?? reason
    to.answer((reason ?? null) === null ? undefined : 'complete')
  }

  /** The first events; empty once the stream has begun. */
  function begin(): string {
    if (id !== null) return ''
    id = freshId(context)
    const response = responseOf({}, id, 'in_progress', repeated, ids)
    return FIRST.map((type) => numbered({ type, response })).join('')
  }

  function finish(to: RewriterOutput): void {
    if (id === null) throw new BadAnswer('the stream was empty')
    output.end(itemStatus(reason))
    const response = finalResponse(tier, id, reason, output.items, usage, context)
    const event = (members: Members) => numbered({ type: `response.${String(response['status'])}`, response: members })
    if (readUsage(usage)) to.write(event(response))
    else terminalEvent = (estimate) => event({ ...response, usage: estimatedResponseUsage(estimate) })
    to.done()
  }

  return {
    ...rewriter,
    fail(failure: Failure) {
      const first = begin()
      const finished = output.items.filter(({ status }) => status !== 'in_progress')
      return (
        first + numbered({ type: 'response.failed', response: responseOf({}, id as string, 'failed', repeated, ids, finished, failure) })
      )
    },
    terminalEvents: (estimate) => terminalEvent(estimate),
    usage: () => readUsage(usage),
    meter,
  }
}
