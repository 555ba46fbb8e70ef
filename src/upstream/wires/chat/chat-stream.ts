/**
 * Stream of a chat completion: chunks, then the usage if the client requested it, then `[DONE]`. A failure ends it with an error chunk and
 * without `[DONE]`, because SDKs take that for success.
 */
import type { Failure } from '../../../domain/errors.ts'
import { chunkOf, cleanChunk, completionHead, hasFailedChoice, meterChoices, type CompletionHead } from './chat-allowed-members.ts'
import type { Ids } from '../encrypted-ids.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { eventIn, openStreamRewriter, overloaded, type RewriterOutput } from '../../sse/stream-rewriter.ts'
import { clientErrorIn } from '../client-error-mapping.ts'
import { isMembers, ownText, type Members } from '../allowlist.ts'
import { isMark, OWN_MARKS, type Placeholder } from '../../sse/event-template.ts'
import { openEventTemplates, type TemplateSets } from '../../sse/event-templates.ts'
import { bytesOf } from '../../sse/sse-parser.ts'
import { chatUsage, estimatedChatUsage, readUsage } from '../../usage/reported-usage.ts'
import type { Usage } from '../../../domain/token-windows.ts'
import { openDetailFragments, sealedDetail } from '../sealed-members.ts'
import { openToolCallFragments } from './tool-call-fragments.ts'
import { BadAnswer, type StreamRewriter } from '../wire.ts'

/** A text in the delta of the first choice. */
export const inDelta = (...path: (string | number)[]): Placeholder => ({
  path: ['choices', 0, 'delta', ...path],
  kind: 'text',
  forwarded: true,
  metered: true,
})

/** What differs between the chunks of an answer. */
export const PLACEHOLDERS: readonly Placeholder[] = [
  inDelta('content'),
  inDelta('reasoning_content'),
  inDelta('reasoning'),
  inDelta('refusal'),
  inDelta('tool_calls', 0, 'function', 'arguments'),
  { path: ['obfuscation'], kind: 'text', forwarded: true, metered: false },
  { path: ['id'], kind: 'text', forwarded: false, metered: false },
  { path: ['system_fingerprint'], kind: 'text', forwarded: false, metered: false },
  { path: ['created'], kind: 'number', forwarded: false, metered: false },
]

/** The values of a stream, in templates. */
const OWN_HEAD: CompletionHead = { id: OWN_MARKS.id, created: OWN_MARKS.created }
/** What a template holds beside its text: the choices of the chunk, and its metered texts that no placeholder holds. */
type ChunkFacts = { choices: ChoiceState[]; texts: string[] }

export type ChatStreamOptions = {
  ids: Ids
  includeUsage: boolean
  /** Epoch seconds. */
  createdAt: number
  /** Of the upstream. */
  templates?: TemplateSets | undefined
}

export const DONE = 'data: [DONE]\n\n'

/** Formats a chunk. */
export function chatEvent(value: unknown): string {
  return `data: ${bytesOf(JSON.stringify(value))}\n\n`
}

/** The error chunk of a chat stream. */
export function chatFailure(failure: Failure): string {
  return chatEvent({ error: { message: failure.message, type: failure.type, code: failure.code, param: failure.facts.param ?? null } })
}

/** The end of a stream that succeeded: `[DONE]`, after the usage if the client requested it. Empty while that is unknown: then the terminal events follow. */
export function chatEnd(head: CompletionHead, includeUsage: boolean, usage: unknown): string {
  if (!includeUsage) return DONE
  return readUsage(usage) ? usageAndDone(head, chatUsage(usage)) : ''
}

/** The end that `chatEnd` left out, with the estimated usage; `[DONE]` alone for a stream that has not begun. */
export function chatTerminalEvents(head: CompletionHead | null, includeUsage: boolean, usage: unknown, estimate: Usage): string {
  if (!includeUsage || readUsage(usage)) return ''
  return head ? usageAndDone(head, estimatedChatUsage(estimate)) : DONE
}

function usageAndDone(head: CompletionHead, usage: Members | undefined): string {
  return chatEvent({ ...chunkOf(head, [], false), usage }) + DONE
}

export function openChatStream({ ids, includeUsage, createdAt, templates: sets = new Map() }: ChatStreamOptions): StreamRewriter {
  const meter = openMeter()
  const choices = trackChoices()
  const fragments = openToolCallFragments(ids)
  const details = openDetailFragments()
  let head: CompletionHead | null = null
  let usage: unknown = null
  const templates = openEventTemplates<ChunkFacts>(sets, includeUsage ? 'chat with usage' : 'chat', {
    accept(facts) {
      if (!details.isEmpty()) return false
      if (!facts.choices.every(({ index, calls }) => choices.has(index) && calls.every((call) => fragments.isUnchanged(index, call))))
        return false
      choices.add(facts.choices)
      for (const text of facts.texts) meter.addText(text)
      return true
    },
    meter: meter.addEscaped,
    own: (name) => (name === 'id' ? `"${head?.id}"` : String(head?.created)),
    head: () => 'data: ',
    ids,
  })

  const rewriter = openStreamRewriter((data, _name, output) => {
    if (data === '[DONE]') return finish(output)
    // The first chunk gives the values of the stream.
    const rewritten = head === null ? null : templates.rewrite(data)
    if (rewritten === null) parse(data, output)
    else output.write(rewritten)
    output.answer(choices.areFinished() ? 'complete' : undefined)
  })

  function parse(data: string, output: RewriterOutput): void {
    const event = eventIn(data)
    const failure = chatErrorIn(event)
    if (failure) return output.fail(failure)
    const isFirst = head === null
    const known = (head ??= completionHead(ids, createdAt))
    const reported = usageIn(event)
    usage = reported ?? usage
    collectDetails(event)
    const chunk = cleanChunk(event, ids, known, includeUsage)
    if (!chunk) return
    const cleaned = chunk['choices'] as Members[]
    const states = cleaned.map(stateOf)
    const isLearned = !isFirst && reported === null && !cleaned.some(namesCall)
    normalize(event, cleaned)
    meterChoices(cleaned, meter.addText)
    if (hasFailedChoice(event['choices'])) return output.fail(overloaded('a choice ended by a failure', event['choices']))
    choices.add(states)
    output.write(chatEvent(chunk))
    if (isLearned) learn(data, event, states)
  }

  /** What a client would replay as an entry for each fragment goes out as one, with what follows the reasoning. */
  function collectDetails({ choices: given }: Members): void {
    for (const choice of Array.isArray(given) ? (given as unknown[]) : []) {
      if (!isMembers(choice)) continue
      const index = Number(choice['index'] ?? 0)
      const added = isMembers(choice['delta']) ? choice['delta'] : {}
      details.take(index, added)
      const hasEnded = (choice['finish_reason'] ?? null) !== null || choices.hasFinished(index)
      const isOver = hasEnded || ownText(added, 'content') !== '' || callsIn(added).length > 0
      const joined = isOver ? details.release(index) : null
      if (joined) choice['delta'] = { ...added, reasoning_details: joined }
    }
  }

  /** Each choice has its role once, in its first delta, because SDKs append texts; its calls are as OpenAI sends them. */
  function normalize(event: Members, cleaned: Members[]): void {
    const given = (event['choices'] as unknown[]).filter(isMembers)
    for (const [n, choice] of cleaned.entries()) {
      const index = choice['index'] as number
      const added = withoutRole(choice['delta'] as Members)
      choice['delta'] = choices.has(index) ? added : { role: 'assistant', ...added }
      fragments.normalize(index, callsIn(given[n]?.['delta']), callsIn(added))
    }
  }

  function learn(data: string, event: Members, states: ChoiceState[]): void {
    const facts: ChunkFacts = { choices: states, texts: [] }
    templates.learn(data, event, PLACEHOLDERS, facts, (marked, markingIds) => {
      const chunk = cleanChunk(marked as Members, markingIds, OWN_HEAD, includeUsage)
      const cleaned = (chunk?.['choices'] ?? []) as Members[]
      for (const choice of cleaned) {
        choice['delta'] = withoutRole(choice['delta'] as Members)
        for (const call of callsIn(choice['delta'])) delete call['type']
      }
      meterChoices(cleaned, (text) => isMark(text) || facts.texts.push(text))
      return chunk
    })
  }

  function finish(output: RewriterOutput): void {
    if (!head || !choices.any()) throw new BadAnswer('the stream was empty')
    for (const choice of choices.finals()) {
      const joined = details.release(choice['index'] as number)
      if (joined) choice['delta'] = { reasoning_details: [sealedDetail({ details: joined }, ids)] }
      output.write(chatEvent(chunkOf(head, [choice], includeUsage)))
    }
    output.write(chatEnd(head, includeUsage, usage))
    output.done()
  }

  return {
    ...rewriter,
    terminalEvents: (estimate) => chatTerminalEvents(head, includeUsage, usage, estimate),
    fail: chatFailure,
    usage: () => readUsage(usage),
    meter,
  }
}

/** The failure that an event of the stream reports, or null. */
export function chatErrorIn({ error }: Members): Failure | null {
  return error === undefined || error === null ? null : (clientErrorIn(error) ?? overloaded('the stream reported an error', error))
}

/** Some upstreams report usage in every chunk, or inside a choice: the last one counts. */
export function usageIn(event: Members): unknown {
  if (readUsage(event['usage'])) return event['usage']
  const [choice] = Array.isArray(event['choices']) ? (event['choices'] as unknown[]) : []
  return isMembers(choice) && readUsage(choice['usage']) ? choice['usage'] : null
}

function withoutRole({ role: _role, ...others }: Members): Members {
  return others
}

/** Whether a cleaned choice has the id or the name of a tool call. Only the fragments after them are equal but for their text. */
function namesCall({ delta: added }: Members): boolean {
  return callsIn(added).some((call) => {
    const called = call['function'] ?? call['custom']
    return call['id'] !== undefined || (isMembers(called) && ownText(called, 'name') !== '')
  })
}

function callsIn(added: unknown): Members[] {
  return isMembers(added) && Array.isArray(added['tool_calls']) ? (added['tool_calls'] as Members[]) : []
}

/** `calls`: the upstream's indexes of the tool calls in the delta. */
type ChoiceState = { index: number; finished: boolean; calls: unknown[] }

function stateOf(choice: Members): ChoiceState {
  return {
    index: choice['index'] as number,
    finished: choice['finish_reason'] !== null,
    calls: callsIn(choice['delta']).map((call) => call['index']),
  }
}

/** Tracks which choices have ended, because each must have a finish reason. */
function trackChoices() {
  const choices = new Map<number, { finished: boolean; called: boolean }>()
  let finishedCount = 0
  return {
    areFinished: () => finishedCount > 0 && finishedCount === choices.size,
    any: () => choices.size > 0,
    has: (index: number) => choices.has(index),
    hasFinished: (index: number) => choices.get(index)?.finished === true,
    add(states: readonly ChoiceState[]): void {
      for (const { index, finished, calls } of states) {
        const known = choices.get(index) ?? { finished: false, called: false }
        choices.set(index, known)
        if (finished && !known.finished) finishedCount++
        known.finished ||= finished
        known.called ||= calls.length > 0
      }
    },
    /** A final choice for each that the upstream left without a finish reason. */
    finals: (): Members[] =>
      [...choices]
        .filter(([, { finished }]) => !finished)
        .map(([index, { called }]) => ({ index, delta: {}, logprobs: null, finish_reason: called ? 'tool_calls' : 'stop' })),
  }
}
