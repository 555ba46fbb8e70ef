/**
 * The stream of a response: known events only, numbered by us, `event:` equal to `type`, and at the end a response with all its members.
 */
import type { Failure } from '../../domain/errors.ts'
import type { Ids } from './encrypted-ids.ts'
import { openMeter } from '../usage/output-meter.ts'
import { openRebuilder, overloaded, type Out } from '../sse/stream-rewriter.ts'
import { judgeError } from '../selection/error-classification.ts'
import { EVENTS, EVENTS_WITH_LOGPROBS, eventMembers, logprobs } from './response-items.ts'
import { measureItems, openResponse, responseOf, type Echo, type ResponseHead, type Status } from './response-object.ts'
import { isMembers, object, type Members } from './member-allowlist.ts'
import { openSplicer, SEQUENCE_MARK, type Hole } from '../sse/event-templates.ts'
import { bytesOf, textOf } from '../sse/sse-parser.ts'
import { readUsage } from '../usage/reported-usage.ts'
import { BadAnswer, type StreamRebuilder } from './wire.ts'

const HOLES: readonly Hole[] = [
  { path: ['delta'], kind: 'text', passed: true, counted: true },
  { path: ['obfuscation'], kind: 'text', passed: true, counted: false },
  { path: ['sequence_number'], kind: 'number', passed: false, counted: false },
]

/** Events that carry the whole response, and its state in them. */
const WHOLE: Record<string, Status> = {
  'response.created': 'in_progress',
  'response.queued': 'queued',
  'response.in_progress': 'in_progress',
  'response.completed': 'completed',
  'response.incomplete': 'incomplete',
}
const FAILED = ['response.failed', 'response.cancelled', 'error']
const LONGEST_OUTPUT = 1024 * 1024

const cleanMembers = object(eventMembers)

const TYPE_AT = '{"type":"'.length

/** An event in bytes; its `type` is always the first member. */
function eventOf(json: string): string {
  return `event: ${json.slice(TYPE_AT, json.indexOf('"', TYPE_AT))}\ndata: ${json}\n\n`
}

export type ResponsesStreamOptions = { ids: Ids; echo: Echo; now: number }

export function openResponsesStream({ ids, echo, now }: ResponsesStreamOptions): StreamRebuilder {
  const meter = openMeter()
  const output = openOutput()
  let sequence = 0
  let head: ResponseHead | null = null
  let usage: unknown = null
  const splicer = openSplicer(HOLES, meter.escaped, () => sequence++)
  const numbered = (event: Members) => eventOf(bytesOf(JSON.stringify({ ...event, sequence_number: sequence++ })))

  const rebuilder = openRebuilder((data, name, out) => {
    if (data === '[DONE]') return
    const spliced = splicer.splice(data)
    if (spliced === null) parse(data, name, out)
    else out.write(eventOf(spliced))
  })

  function parse(data: string, name: string, out: Out): void {
    const event: unknown = JSON.parse(textOf(data))
    if (!isMembers(event)) throw new BadAnswer('an event is not an object')
    const kind = typeof event['type'] === 'string' ? event['type'] : name
    const response = isMembers(event['response']) ? event['response'] : {}
    if (response['usage']) usage = response['usage']
    if (FAILED.includes(kind) || (kind === '' && event['error'])) return out.broke(failureIn(event, response))
    const status = WHOLE[kind]
    if (status) return whole(kind, status, response, out)
    const cleaned = cleanEvent(event, kind, ids)
    if (!cleaned) return
    note(cleaned)
    out.write(numbered(cleaned))
    if (typeof event['type'] === 'string')
      splicer.learn(data, event, (marked) => ({ ...cleanEvent(marked as Members, kind, ids), sequence_number: SEQUENCE_MARK }))
  }

  function note(cleaned: Members): void {
    if (typeof cleaned['delta'] === 'string') meter.plain(cleaned['delta'])
    if (cleaned['type'] !== 'response.output_item.done' || !isMembers(cleaned['item'])) return
    if (meter.rough() === 0) measureItems([cleaned['item']], meter)
    output.keep(cleaned['item'])
  }

  function whole(kind: string, status: Status, response: Members, out: Out): void {
    const known = (head ??= openResponse(response, ids, now))
    const last = status === 'completed' || status === 'incomplete'
    const leftOut = last && !(Array.isArray(response['output']) && response['output'].length > 0)
    out.write(
      numbered({
        type: kind,
        sequence_number: 0,
        response: responseOf(response, known, status, echo, ids, leftOut ? output.items() : undefined),
      }),
    )
    if (last) out.done()
  }

  return {
    ...rebuilder,
    fail(failure) {
      const response = responseOf({}, head ?? openResponse({}, ids, now), 'failed', echo, ids, output.items(), failure)
      return numbered({ type: 'response.failed', sequence_number: 0, response })
    },
    usage: () => readUsage(usage),
    meter,
  }
}

/** Null for an event that is not of the wire, or about an item, part or annotation that is not. */
function cleanEvent(event: Members, kind: string, ids: Ids): Members | null {
  if (!EVENTS.has(kind)) return null
  const cleaned = cleanMembers(event, ids) as Members
  for (const name of ['item', 'part', 'annotation']) if (event[name] !== undefined && cleaned[name] === undefined) return null
  return {
    type: kind,
    sequence_number: 0,
    ...cleaned,
    ...(EVENTS_WITH_LOGPROBS.includes(kind) ? { logprobs: logprobs(event['logprobs'], ids) } : {}),
  }
}

function failureIn(event: Members, response: Members): Failure {
  const error = response['error'] ?? event['error'] ?? event
  return judgeError(error) ?? overloaded('the stream brought a failure', error)
}

/** Keeps finished items for an upstream whose last event leaves them out, as long as they are not more than `LONGEST_OUTPUT`. */
function openOutput() {
  const kept: Members[] = []
  let bytes = 0
  return {
    items: () => kept,
    keep(item: Members): void {
      bytes += JSON.stringify(item).length
      if (bytes <= LONGEST_OUTPUT) kept.push(item)
    },
  }
}
