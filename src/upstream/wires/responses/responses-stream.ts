/** Stream of a response: known events only, our own sequence numbers, `event:` equal to `type`, and a complete response at the end. */
import type { Failure } from '../../../domain/errors.ts'
import type { Usage } from '../../../domain/token-windows.ts'
import type { Ids, SealingIds } from '../encrypted-ids.ts'
import { openMeter } from '../../usage/output-meter.ts'
import { eventIn, openStreamRewriter, overloaded, type RewriterOutput } from '../../sse/stream-rewriter.ts'
import { clientErrorIn } from '../client-error-mapping.ts'
import { EVENTS, EVENTS_WITH_LOGPROBS, eventMembers, logprobs } from './response-allowed-members.ts'
import {
  completed,
  completeItem,
  completeItems,
  meterItems,
  responseId,
  responseOf,
  type RepeatedMembers,
  type Status,
} from './response-object.ts'
import { isMembers, object, type Members } from '../allowlist.ts'
import { indexesOf, openOutputIndexes, type IndexedEvent } from './output-indexes.ts'
import { OWN_MARKS, type Placeholder } from '../../sse/event-template.ts'
import { openEventTemplates, type TemplateSets } from '../../sse/event-templates.ts'
import { bytesOf } from '../../sse/sse-parser.ts'
import { estimatedResponseUsage, readUsage } from '../../usage/reported-usage.ts'
import type { StreamRewriter } from '../wire.ts'

/** What differs between the deltas of an answer. */
export const PLACEHOLDERS: readonly Placeholder[] = [
  { path: ['delta'], kind: 'text', forwarded: true, metered: true },
  { path: ['obfuscation'], kind: 'text', forwarded: true, metered: false },
  { path: ['item_id'], kind: 'id', forwarded: true, metered: false },
  { path: ['sequence_number'], kind: 'number', forwarded: false, metered: false },
]

/** The events that carry the whole response, with its status. */
const WHOLE: Record<string, Status> = {
  'response.created': 'in_progress',
  'response.queued': 'queued',
  'response.in_progress': 'in_progress',
  'response.completed': 'completed',
  'response.incomplete': 'incomplete',
}
export const FAILED = ['response.failed', 'response.cancelled', 'error']
/** Statuses that some servers send in `response.completed`. */
export const FAILED_STATUSES = ['failed', 'cancelled']

/** The events with which a stream begins. */
export const FIRST = ['response.created', 'response.in_progress']

const isLast = (status: Status | undefined) => status === 'completed' || status === 'incomplete'
const MAX_OUTPUT_BYTES = 1024 * 1024

const cleanMembers = object(eventMembers)

const TYPE_AT = '{"type":"'.length

/** What stands before the JSON of an event, whose first member must be `type`. */
export function eventHead(json: string): string {
  return `event: ${json.slice(TYPE_AT, json.indexOf('"', TYPE_AT))}\ndata: `
}

/** Formats an event of any members; `type` must be the first. */
export function responseEvent(event: Members): string {
  const json = bytesOf(JSON.stringify(event))
  return `${eventHead(json)}${json}\n\n`
}

/** `templates`: of the upstream. */
export type ResponsesStreamOptions = { ids: Ids; repeated: RepeatedMembers; now: () => number; templates?: TemplateSets | undefined }

export function openResponsesStream({ ids, repeated, now, templates: sets = new Map() }: ResponsesStreamOptions): StreamRewriter {
  const meter = openMeter()
  const finished = openFinishedItems()
  const indexes = openOutputIndexes()
  const itemIds = openItemIds(ids)
  let sequence = 0
  let id: string | null = null
  let usage: unknown = null
  let terminalEvent: (estimate: Usage) => string = () => ''
  const templates = openEventTemplates<IndexedEvent>(sets, 'responses', {
    accept: indexes.areUnchanged,
    meter: meter.addEscaped,
    own: () => String(sequence++),
    head: eventHead,
    ids,
  })
  const numbered = (event: Members) => responseEvent({ ...event, sequence_number: sequence++ })

  const rewriter = openStreamRewriter((data, name, output) => {
    if (data === '[DONE]') return
    const rewritten = id === null ? null : templates.rewrite(data)
    if (rewritten === null) return parse(data, name, output)
    output.write(rewritten)
    output.answer(undefined)
  })

  function parse(data: string, name: string, output: RewriterOutput): void {
    const event = eventIn(data)
    const kind = typeof event['type'] === 'string' ? event['type'] : name
    const response = isMembers(event['response']) ? event['response'] : {}
    if (response['usage']) usage = response['usage']
    const status = WHOLE[kind]
    const last = isLast(status)
    if (FAILED.includes(kind) || (kind === '' && event['error']) || (last && FAILED_STATUSES.includes(String(response['status']))))
      return output.fail(failureIn(event, response))
    if (last && response['status'] === 'incomplete') return writeWhole('response.incomplete', 'incomplete', response, output)
    if (kind === 'response.in_progress' && id === null) return output.write(begin(response))
    if (status) return writeWhole(kind, status, response, output)
    const cleaned = placedEvent(event, kind)
    if (!cleaned) return
    output.answer(endsText(event, kind) ? 'complete' : undefined)
    output.write(begin(response))
    meterEvent(cleaned)
    output.write(numbered(cleaned))
    if (isDelta(event) && typeof event['item_id'] === 'string' && indexes.areUnchanged(event))
      templates.learn(data, event, PLACEHOLDERS, indexesOf(event), (marked, markingIds) => ({
        ...cleanEvent(marked as Members, kind, markingIds),
        sequence_number: OWN_MARKS.sequence,
      }))
  }

  /** The first events of the wire, where the upstream left them out: SDKs refuse a stream without them. Empty once the stream has begun. */
  function begin(response: Members): string {
    if (id !== null) return ''
    id = responseId(response['id'], ids)
    const whole = responseOf({}, id, 'in_progress', repeated, ids)
    return FIRST.map((type) => numbered({ type, sequence_number: 0, response: whole })).join('')
  }

  /** The event with our members, ids and indexes, or null for one that is dropped. */
  function placedEvent(event: Members, kind: string): Members | null {
    if (!EVENTS.has(kind)) return null
    const cleaned = cleanEvent(event, kind, ids)
    if (cleaned) return indexes.renumber(event, itemIds.complete(event, cleaned))
    indexes.drop(event)
    return null
  }

  function meterEvent(cleaned: Members): void {
    if (typeof cleaned['delta'] === 'string') meter.addText(cleaned['delta'])
    if (cleaned['type'] !== 'response.output_item.done' || !isMembers(cleaned['item'])) return
    if (meter.estimateTokens() === 0) meterItems([cleaned['item']], meter)
    finished.add(cleaned['item'], cleaned['output_index'])
  }

  function writeWhole(kind: string, status: Status, response: Members, output: RewriterOutput): void {
    const last = isLast(status)
    if (last) output.write(begin(response))
    const known = (id ??= responseId(response['id'], ids))
    const lacksOutput = last && !(Array.isArray(response['output']) && response['output'].length > 0)
    const whole = responseOf(
      last ? completed(response, now) : response,
      known,
      status,
      repeated,
      ids,
      lacksOutput ? finished.items() : itemIds.completeAll(response['output']),
    )
    const event = (members: Members) => numbered({ type: kind, sequence_number: 0, response: members })
    if (!last || readUsage(usage)) output.write(event(whole))
    else terminalEvent = (estimate) => event({ ...whole, usage: estimatedResponseUsage(estimate) })
    if (last) output.done()
  }

  return {
    ...rewriter,
    fail(failure) {
      const first = begin({})
      const response = responseOf({}, id as string, 'failed', repeated, ids, finished.items(), failure)
      return first + numbered({ type: 'response.failed', sequence_number: 0, response })
    },
    terminalEvents: (estimate) => terminalEvent(estimate),
    usage: () => readUsage(usage),
    meter,
  }
}

/** Whether a text, a call or an item ends, after which the answer may be complete. The end of reasoning is not: the answer comes after it. */
export function endsText(event: Members, kind: string): boolean {
  const { item } = event
  return kind.endsWith('.done') && !kind.includes('reasoning') && !(isMembers(item) && item['type'] === 'reasoning')
}

/** An event that has no other effect than its text. */
function isDelta(event: Members): boolean {
  return (
    typeof event['type'] === 'string' &&
    typeof event['delta'] === 'string' &&
    !['response', 'item', 'part', 'annotation'].some((name) => name in event)
  )
}

/** The ids of the items of a stream, for events without them, or of their own where the upstream gives none: equal in all events of an item. */
function openItemIds(ids: Ids) {
  const known = new Map<unknown, string>()

  function idAt(index: unknown, prefix: string): string {
    const id = known.get(index) ?? ids.fresh(prefix)
    known.set(index, id)
    return id
  }

  return {
    /** `event` is the upstream's. */
    complete(event: Members, cleaned: Members): Members {
      const { output_index: index } = event
      if (typeof index !== 'number') return cleaned
      const { item } = cleaned
      if (isMembers(item)) {
        if (typeof item['id'] === 'string') known.set(index, item['id'])
        const status = cleaned['type'] === 'response.output_item.done' ? 'completed' : 'in_progress'
        return { ...cleaned, item: completeItem(item, status, (prefix) => idAt(index, prefix)) }
      }
      return cleaned['item_id'] === undefined ? { ...cleaned, item_id: idAt(index, 'item_') } : cleaned
    },
    /** The items at the end; undefined without an output. */
    completeAll: (output: unknown) => completeItems(output, ids, (prefix, index) => idAt(index, prefix)),
  }
}

/** Null for an event whose item, part or annotation is not of the wire. */
function cleanEvent(event: Members, kind: string, ids: SealingIds): Members | null {
  const cleaned = cleanMembers(event, ids) as Members
  for (const name of ['item', 'part', 'annotation']) if (event[name] !== undefined && cleaned[name] === undefined) return null
  return {
    type: kind,
    sequence_number: 0,
    ...cleaned,
    ...(EVENTS_WITH_LOGPROBS.includes(kind) ? { logprobs: logprobs(event['logprobs'], ids) } : {}),
  }
}

/** The failure that an event reports: that of the request if the client caused it, else `server_overloaded`. */
export function failureIn(event: Members, response: Members): Failure {
  const error = response['error'] ?? event['error'] ?? event
  return clientErrorIn(error) ?? overloaded('the stream reported a failure', error)
}

/** Keeps finished items, up to `MAX_OUTPUT_BYTES`, for upstreams whose last event lacks them. */
function openFinishedItems() {
  const finished: { item: Members; index: number }[] = []
  let bytes = 0
  return {
    items: () => finished.sort((a, b) => a.index - b.index).map(({ item }) => item),
    add(item: Members, index: unknown): void {
      bytes += JSON.stringify(item).length
      if (bytes <= MAX_OUTPUT_BYTES) finished.push({ item, index: typeof index === 'number' ? index : finished.length })
    },
  }
}
