/** A chat request at an upstream of the Responses wire: its body, and the answer as a chat completion or as its chunks. */
import { Failure } from '../../../domain/errors.ts'
import { isMembers, own, type Members } from '../../wires/allowlist.ts'
import { chunkOf, completionHead, tierOf, type CompletionHead } from '../../wires/chat/chat-allowed-members.ts'
import type { ChatRequest } from '../../wires/chat/chat-request.ts'
import { chatEnd, chatEvent, chatFailure, chatTerminalEvents, DONE } from '../../wires/chat/chat-stream.ts'
import { clientErrorIn } from '../../wires/client-error-mapping.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { MODEL } from '../../wires/model-name.ts'
import { LEAST_OUTPUT } from '../../wires/responses/responses-request.ts'
import { endsText, failureIn, FAILED, FAILED_STATUSES } from '../../wires/responses/responses-stream.ts'
import { bodyWriter } from '../../wires/upstream-body.ts'
import { BadAnswer, type JsonAnswer, type StreamRewriter, type UpstreamCall } from '../../wires/wire.ts'
import { openStreamRewriter, type RewriterOutput } from '../../sse/stream-rewriter.ts'
import { OWN_MARKS } from '../../sse/event-template.ts'
import type { TemplateSets } from '../../sse/event-templates.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { chatUsage, estimatedChatUsage, readUsage } from '../../usage/reported-usage.ts'
import { openChatDeltas, type EmitDelta } from './chat-deltas.ts'
import { responsesBody } from './responses-body.ts'
import { hasFunctions } from './responses-tools.ts'
import { openContinuedText } from '../continued-text.ts'
import { openStopFilter, stopSequences } from '../stop-sequences.ts'
import { openThinking } from '../../wires/messages/sealed-thinking.ts'
import { responsesToMessages, type ResponsesAnswer } from '../responses-to-messages/responses-to-messages.ts'
import { unsupported } from '../unsupported-parameter.ts'

type Context = { ids: Ids; createdAt: number; includeUsage: boolean; legacy: boolean; stop: readonly string[] }

/** `cap`: the plan's limit of output tokens. Throws `unsupported_parameter` for what the Responses wire cannot express. */
export function chatToResponses(request: ChatRequest, cap: number, ids: Ids): UpstreamCall {
  const { stream } = request
  const built = responsesBody(request, ids, false)
  const input = (built['input'] as Members[]).filter((item) => openThinking(own(item, 'encrypted_content')) === null)
  const sent = { ...built, input, ...(stream ? { stream: true } : {}) }
  return {
    wire: 'responses',
    stream,
    ...bodyWriter('responses', sent, 'max_output_tokens', Math.max(LEAST_OUTPUT, limitOf(request, cap)), true, ids),
    ...answerIn(request, ids),
    isTranslation: true,
    translated: null,
  }
}

/** The same at an upstream of the Messages wire, by way of the Responses wire. */
export function chatToMessages(request: ChatRequest, cap: number, ids: Ids): UpstreamCall {
  const { stream, body } = request
  try {
    const limit = limitOf(request, cap)
    return responsesToMessages(responsesBody(request, ids, true), { limit, stream, stop: stopSequences(body), ids }, answerIn(request, ids))
  } catch (error) {
    throw error instanceof Failure ? inChatTerms(error) : error
  }
}

/** What the client's request calls the members of a Responses request. */
const CHAT_NAMES: [of: RegExp, name: string][] = [
  [/^input\[/, 'messages'],
  [/^text\.format/, 'response_format'],
  [/^include/, 'logprobs'],
]

function inChatTerms(failure: Failure): Failure {
  const { param } = failure.facts
  const [, name] = CHAT_NAMES.find(([of]) => of.test(String(param))) ?? []
  return name === undefined ? failure : unsupported(name)
}

const limitOf = ({ perChoice }: ChatRequest, cap: number) => (perChoice === null ? cap : Math.min(perChoice, cap))

function answerIn({ body, options, createdAt }: ChatRequest, ids: Ids): ResponsesAnswer {
  const context = { ids, createdAt, includeUsage: options['include_usage'] === true, legacy: hasFunctions(body), stop: stopSequences(body) }
  return { openRewriter: (templates) => openResponsesAsChat(context, templates), rewriteJson: (value) => completionAnswer(value, context) }
}

/** The finish reason for the status of a response. */
function finishReason(response: Members, calls: number, legacy: boolean): string {
  const details = response['incomplete_details']
  if (response['status'] === 'incomplete') return isMembers(details) && details['reason'] === 'content_filter' ? 'content_filter' : 'length'
  return calls === 0 ? 'stop' : legacy ? 'function_call' : 'tool_calls'
}

function completionAnswer(value: unknown, { ids, createdAt, legacy, stop }: Context): JsonAnswer {
  if (!isMembers(value) || !Array.isArray(value['output'])) throw new BadAnswer('the answer is not a response')
  const status = value['status'] ?? 'completed'
  if (status !== 'completed' && status !== 'incomplete')
    throw clientErrorIn(value['error']) ?? new BadAnswer('the response did not complete')
  const meter = openMeter()
  const message: Members = { role: 'assistant', content: null, refusal: null }
  const logprobs: unknown[] = []
  const emit: EmitDelta = (delta, tokens) => {
    addDelta(message, delta)
    for (const token of (tokens?.['content'] ?? []) as unknown[]) logprobs.push(token)
  }
  const ending = openStop(stop, emit)
  const deltas = openChatDeltas(ids, meter, ending.emit)
  for (const [index, item] of (value['output'] as unknown[]).entries()) if (isMembers(item)) deltas.item(item, index)
  ending.flush()
  if (ending.stopped()) message['content'] ??= ''
  if (legacy) Object.assign(message, legacyCall(message))
  const usage = readUsage(value['usage'])
  const completion = {
    ...completionHead(ids, createdAt),
    object: 'chat.completion',
    model: MODEL,
    choices: [
      {
        index: 0,
        message,
        logprobs: logprobs.length > 0 ? { content: logprobs, refusal: null } : null,
        finish_reason: ending.stopped() ? 'stop' : finishReason(value, deltas.calls(), legacy),
      },
    ],
  }
  const reported = chatUsage(value['usage'])
  const tier = tierOf(value, ids)
  return { body: (estimate) => JSON.stringify({ ...completion, usage: reported ?? estimatedChatUsage(estimate), ...tier }), usage, meter }
}

/** Passes deltas on up to a stop sequence in the text of the answer. Nothing follows it. */
function openStop(sequences: readonly string[], emit: EmitDelta): { emit: EmitDelta; flush(): void; stopped(): boolean } {
  const filter = openStopFilter(sequences)
  const flush = () => {
    const rest = filter.flush()
    if (rest !== '') emit({ content: rest }, null)
  }
  return {
    flush,
    stopped: filter.stopped,
    emit(delta, logprobs) {
      if (filter.stopped()) return
      const { content } = delta
      if (typeof content !== 'string') {
        flush()
        return emit(delta, logprobs)
      }
      const passed = filter.push(content)
      if (passed !== '') emit({ ...delta, content: passed }, logprobs)
    },
  }
}

/** Adds a delta to a message: text is appended, whole tool calls and lists are collected. */
function addDelta(message: Members, delta: Members): void {
  for (const [name, value] of Object.entries(delta)) {
    if (name === 'tool_calls') addCalls(message, value as Members[])
    else if (Array.isArray(value)) message[name] = [...((message[name] ?? []) as unknown[]), ...(value as unknown[])]
    else message[name] = String(message[name] ?? '') + String(value)
  }
}

function addCalls(message: Members, deltas: Members[]): void {
  const calls = (message['tool_calls'] ??= []) as Members[]
  for (const { index, id, type, ...called } of deltas) {
    const known = calls[index as number]
    if (known) addDelta(known[String(known['type'])] as Members, (called['function'] ?? called['custom']) as Members)
    else calls.push({ id, type, ...called })
  }
}

/** For clients that use `functions`: the first call as `function_call`. */
function legacyCall(delta: Members): Members {
  const [call] = (delta['tool_calls'] ?? []) as Members[]
  delete delta['tool_calls']
  return call && (call['index'] ?? 0) === 0 && isMembers(call['function']) ? { function_call: call['function'] } : {}
}

function openResponsesAsChat({ ids, createdAt, includeUsage, legacy, stop }: Context, sets: TemplateSets = new Map()): StreamRewriter {
  const meter = openMeter()
  let head: CompletionHead | null = null
  let tier: Members = {}
  let usage: unknown = null
  let written: RewriterOutput | null = null
  /** Whether the finish reason was written. */
  let isClosed = false

  const choice = (delta: Members, logprobs: unknown, reason: string | null) => [{ index: 0, delta, logprobs, finish_reason: reason }]
  const ending = openStop(stop, (delta, logprobs) => {
    const given = legacy ? { ...delta, ...legacyCall(delta) } : delta
    if (legacy) delete given['tool_calls']
    if (!head || Object.keys(given).length === 0) return
    const chunk = chunkOf(head, choice(given, logprobs, null), includeUsage, tier)
    continued.became(chunk)
    written?.write(chatEvent(chunk))
  })
  const deltas = openChatDeltas(ids, meter, ending.emit)
  const continued = openContinuedText(sets, 'responses', 'chat', {
    mark: (chunk) => ({ ...chunk, id: OWN_MARKS.id, created: OWN_MARKS.created }),
    own: (name) => JSON.stringify(name === 'id' ? head?.id : head?.created),
    grow: meter.addEscaped,
    stop,
  })

  const rewriter = openStreamRewriter((data, name, to) => {
    const rewritten = continued.rewrite(data)
    if (rewritten !== null) return to.write(rewritten)
    written = to
    if (data === '[DONE]') return
    const event = continued.parse(data)
    read(event, name, to)
    continued.learn(data, event)
  })

  function read(event: Members, name: string, to: RewriterOutput): void {
    const type = typeof event['type'] === 'string' ? event['type'] : name
    const response = isMembers(event['response']) ? event['response'] : {}
    if (readUsage(response['usage'])) usage = response['usage']
    const last = type === 'response.completed' || type === 'response.incomplete'
    const failed = FAILED.includes(type) || (last && FAILED_STATUSES.includes(String(response['status'])))
    if (failed || (type === '' && event['error'])) return to.fail(failureIn(event, response))
    if (!type.startsWith('response.')) return
    if (!head) begin(response, to)
    if (last) return finish(type === 'response.incomplete' ? { ...response, status: 'incomplete' } : response, to)
    deltas.event(type, event)
    if (!ending.stopped()) return to.answer(endsText(event, type) ? 'complete' : undefined)
    if (!isClosed) {
      close('stop', to)
      if (!includeUsage) to.write(DONE)
    }
    to.readOn(type.endsWith('.delta') ? String(event['delta']).length : 0)
  }

  function begin(response: Members, to: RewriterOutput): void {
    head = completionHead(ids, createdAt)
    tier = tierOf(response, ids)
    to.write(chatEvent(chunkOf(head, choice({ role: 'assistant', content: '' }, null, null), includeUsage, tier)))
  }

  /** Some servers send the output in the last event only. */
  function finish(response: Members, to: RewriterOutput): void {
    if (!head) return
    const output = Array.isArray(response['output']) ? (response['output'] as unknown[]) : []
    if (!deltas.any()) for (const [index, item] of output.entries()) if (isMembers(item)) deltas.item(item, index)
    tier = tierOf(response, ids)
    ending.flush()
    const wasStopped = isClosed
    if (!isClosed) close(ending.stopped() ? 'stop' : finishReason(response, deltas.calls(), legacy), to)
    if (includeUsage || !wasStopped) to.write(chatEnd(head, includeUsage, usage))
    to.done()
  }

  function close(reason: string, to: RewriterOutput): void {
    isClosed = true
    if (head) to.write(chatEvent(chunkOf(head, choice({}, null, reason), includeUsage, tier)))
  }

  return {
    ...rewriter,
    terminalEvents: (estimate) => chatTerminalEvents(head, includeUsage, usage, estimate),
    fail: chatFailure,
    usage: () => readUsage(usage),
    meter,
  }
}
