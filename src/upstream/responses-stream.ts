/** The stream of a response: known events only, numbered by us, `event:` equal to `type`, and at the end a response with all its members. */
import { overloaded } from './chat-stream.ts'
import type { Ids } from './ids.ts'
import { openMeter } from './meter.ts'
import { judgeError } from './refusal.ts'
import { EVENTS, EVENTS_WITH_LOGPROBS, eventMembers, logprobs } from './response-items.ts'
import { measureItems, openResponse, responseOf, type Echo, type ResponseHead, type Status } from './responses.ts'
import { isMembers, object, type Members } from './shape.ts'
import { openSplicer, SEQUENCE_MARK, type Hole } from './splice.ts'
import { bytesOf, openSse, textOf } from './sse.ts'
import { readUsage } from './usage.ts'
import { BadAnswer, type Phase, type StreamRebuilder } from './wire.ts'

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
/** Items are kept for an upstream whose last event leaves them out, as long as they are not more than this. */
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
  let sequence = 0
  let phase: Phase = { name: 'open' }
  let head: ResponseHead | null = null
  let usage: unknown = null
  let out = ''
  let kept: Members[] = []
  let keptBytes = 0

  const splicer = openSplicer(HOLES, meter.escaped, () => sequence++)

  const sse = openSse((data, name) => {
    if (phase.name !== 'open' || data === '[DONE]') return
    const spliced = splicer.splice(data)
    if (spliced === null) parse(data, name)
    else out += eventOf(spliced)
  })

  function write(event: Members): void {
    out += eventOf(bytesOf(JSON.stringify({ ...event, sequence_number: sequence++ })))
  }

  function parse(data: string, name: string): void {
    const event: unknown = JSON.parse(textOf(data))
    if (!isMembers(event)) throw new BadAnswer('an event is not an object')
    const kind = typeof event['type'] === 'string' ? event['type'] : name
    if (FAILED.includes(kind) || (kind === '' && event['error'])) return broken(event)
    const status = WHOLE[kind]
    if (status) return whole(kind, status, isMembers(event['response']) ? event['response'] : {})
    if (!EVENTS.has(kind)) return
    const cleaned = cleanEvent(event, kind)
    if (!cleaned) return
    note(cleaned)
    write(cleaned)
    if (typeof event['type'] === 'string') splicer.learn(data, event, (marked) => ({ ...cleanEvent(marked as Members, kind), sequence_number: SEQUENCE_MARK }))
  }

  /** Null for an event about an item, part or annotation that is not of the wire. */
  function cleanEvent(event: Members, kind: string): Members | null {
    const cleaned = cleanMembers(event, ids) as Members
    for (const name of ['item', 'part', 'annotation']) if (event[name] !== undefined && cleaned[name] === undefined) return null
    return { type: kind, sequence_number: 0, ...cleaned, ...(EVENTS_WITH_LOGPROBS.includes(kind) ? { logprobs: logprobs(event['logprobs'], ids) } : {}) }
  }

  function note(cleaned: Members): void {
    if (typeof cleaned['delta'] === 'string') meter.plain(cleaned['delta'])
    if (cleaned['type'] !== 'response.output_item.done' || !isMembers(cleaned['item'])) return
    if (meter.rough() === 0) measureItems([cleaned['item']], meter)
    keptBytes += JSON.stringify(cleaned['item']).length
    if (keptBytes <= LONGEST_OUTPUT) kept.push(cleaned['item'])
  }

  function whole(kind: string, status: Status, response: Members): void {
    const known = (head ??= openResponse(response, ids, now))
    if (response['usage']) usage = response['usage']
    const last = status === 'completed' || status === 'incomplete'
    const leftOut = last && kept.length > 0 && !(Array.isArray(response['output']) && response['output'].length > 0)
    write({ type: kind, sequence_number: 0, response: responseOf(response, known, status, echo, ids, leftOut ? kept : undefined) })
    if (!last) return
    kept = []
    phase = { name: 'done' }
  }

  function broken(event: Members): void {
    const response = isMembers(event['response']) ? event['response'] : {}
    if (response['usage']) usage = response['usage']
    const error = response['error'] ?? event['error'] ?? event
    phase = { name: 'broken', failure: judgeError(error) ?? overloaded('the stream brought a failure', error) }
  }

  function made(run: () => void): string {
    out = ''
    try {
      if (phase.name === 'open') run()
    } catch (cause) {
      phase = { name: 'broken', failure: overloaded('the stream is not the responses wire', cause) }
    }
    return out
  }

  return {
    push: (chunk) => made(() => sse.push(chunk)),
    end: () =>
      made(() => {
        sse.end()
        if (phase.name === 'open') throw new BadAnswer('the stream ended without its last event')
      }),
    fail(failure) {
      out = ''
      const known = head ?? openResponse({}, ids, now)
      write({ type: 'response.failed', sequence_number: 0, response: responseOf({}, known, 'failed', echo, ids, kept, failure) })
      return out
    },
    phase: () => phase,
    usage: () => readUsage(usage),
    meter,
  }
}
