/**
 * Translates events that only continue the text of the event before, without parsing them: by the templates of `sse/event-templates.ts`. Such an
 * event equals the one before it in all but its text and what the client does not get, and that one became a single event with that text.
 * Whatever else it did to the state of the translation, it has done already.
 */
import type { OwnName, Placeholder } from '../sse/event-template.ts'
import { openEventTemplates, type TemplateSets } from '../sse/event-templates.ts'
import { eventIn } from '../sse/stream-rewriter.ts'
import { isMembers, type Members } from '../wires/allowlist.ts'
import { inDelta, PLACEHOLDERS as CHAT } from '../wires/chat/chat-stream.ts'
import { DELTA_HEAD } from '../wires/messages/message-object.ts'
import { PLACEHOLDERS as MESSAGES } from '../wires/messages/message-stream.ts'
import { eventHead, PLACEHOLDERS as RESPONSES } from '../wires/responses/responses-stream.ts'
import type { WireName } from '../wires/wire.ts'

type Path = Placeholder['path']

export type ContinuedText = {
  /** What the event becomes, or null for one that must be parsed. */
  rewrite(raw: string): string | null
  /** The event. Throws `BadAnswer` for what is no object. */
  parse(raw: string): Members
  /** Notes what the event that was parsed last becomes. */
  became(event: Members): void
  /** Learns from it. */
  learn(raw: string, event: Members): void
}

/** What the wire of the client has to have. */
export type ContinuedStream = {
  /** An event with `OWN_MARKS` for the values of the stream; without it the stream has none. */
  mark?(event: Members): Members
  /** The JSON for one of these; `event`: what the text before became. */
  own?(name: OwnName, event: Members): string
  /** Gets each text as it stands between its quotes, to be added where the text before it went. */
  grow?(slice: string): void
  /** Sequences that are looked for in the text, parts of which are then held back: nothing is learned. */
  stop?: readonly string[]
}

/** Of the events of a wire: what stands before their JSON, whether each tells its type, where a text can be, what differs beside it, and what must be empty because
 * a translation collects it. */
type Shape = { head(json: string): string; isTyped: boolean; texts: Path[]; ignored: Placeholder[]; empty: Path[] }

const SHAPES: Record<WireName, Shape> = {
  chat: {
    ...differing([...CHAT, inDelta('tool_calls', 0, 'custom', 'input'), inDelta('function_call', 'arguments')]),
    head: () => 'data: ',
    isTyped: false,
    empty: [['choices', 1], ['choices', 0, 'logprobs'], inDelta('tool_calls', 1).path, inDelta('reasoning_details').path],
  },
  responses: { ...differing(RESPONSES), head: eventHead, isTyped: true, empty: [['logprobs']] },
  messages: { ...differing(MESSAGES), head: () => DELTA_HEAD, isTyped: true, empty: [['delta', 'signature']] },
}

/** What differs between the deltas of a wire, where their streams say so. Of the rest nothing reaches a client of another wire. */
function differing(placeholders: readonly Placeholder[]): Pick<Shape, 'texts' | 'ignored'> {
  const rest = placeholders.filter(({ metered }) => !metered)
  return {
    texts: placeholders.filter(({ metered }) => metered).map(({ path }) => path),
    ignored: rest.map(({ path, kind }) => ({ path, kind: kind === 'number' ? kind : 'text', forwarded: false, metered: false })),
  }
}

/** Learning costs more than parsing: a stream in which no event continues the one before is parsed throughout. */
const MAX_IN_VAIN = 8

/** Templates have no ids of the upstream. */
const NO_IDS = { encrypt: () => '' }

/** `sets`: of the upstream, which speaks the wire `from`. */
export function openContinuedText(
  sets: TemplateSets,
  from: WireName,
  to: WireName,
  { mark = (event) => event, own = () => '', grow = () => {}, stop = [] }: ContinuedStream,
): ContinuedText {
  const { isTyped, texts, ignored, empty } = SHAPES[from]
  /** What the last event and its translation are but for the text, if the next may continue it. */
  let last: string | null = null
  /** Its item, where the wire names one. */
  let item = ''
  let inVain = 0
  let became: Members[] = []
  const templates = openEventTemplates<string>(sets, `${from} to ${to}`, {
    accept: (shape) => shape === last,
    meter: grow,
    own: (name) => own(name, became[0] ?? {}),
    head: SHAPES[to].head,
    ids: NO_IDS,
  })

  return {
    rewrite(raw) {
      const rewritten = last === null || !raw.includes(item) ? null : templates.rewrite(raw)
      if (rewritten === null) last = null
      else inVain = 0
      return rewritten
    },
    parse(raw) {
      became = []
      return eventIn(raw)
    },
    became: (one) => void became.push(one),
    learn(raw, event) {
      const [only, ...others] = became
      if (stop.length > 0 || !only || others.length > 0 || inVain++ >= MAX_IN_VAIN) return
      const path = texts.find((one) => !isEmpty(valueAt(event, one)))
      if (!path || empty.some((one) => !isEmpty(valueAt(event, one)))) return
      const text = valueAt(event, path)
      const marked = mark(only)
      const target = SHAPES[to].texts.find((one) => valueAt(marked, one) === text)
      // A type that the name of the event tells is not in what is compared.
      if (typeof text !== 'string' || !target || (isTyped && typeof event['type'] !== 'string')) return
      last = JSON.stringify([
        ignored.reduce((rest, { path: one }) => withValue(rest, one, null), withValue(event, path, null)),
        withValue(marked, target, null),
      ])
      item = typeof event['item_id'] === 'string' ? JSON.stringify(event['item_id']) : ''
      const placeholders: Placeholder[] = [{ path, kind: 'nonempty', forwarded: true, metered: true }, ...ignored]
      templates.learn(raw, event, placeholders, last, (learned) => withValue(marked, target, valueAt(learned, path)))
    },
  }
}

/** The text of a slice between the quotes of a JSON string, UTF-8 read as latin1: a copy, because a slice retains what it was cut from. */
export function textOfSlice(slice: string): string {
  const text = Buffer.from(slice, 'latin1').toString()
  return text.includes('\\') ? (JSON.parse(`"${text}"`) as string) : text
}

const isEmpty = (value: unknown) => value === undefined || value === null || value === '' || (Array.isArray(value) && value.length === 0)

function valueAt(value: unknown, path: Path): unknown {
  return path.reduce<unknown>(
    (holder, key) => (Array.isArray(holder) ? holder[key as number] : isMembers(holder) ? holder[key] : undefined),
    value,
  )
}

/** A copy with another value at the path, if there is one. */
function withValue(value: unknown, path: Path, changed: unknown): unknown {
  const copy = structuredClone(value)
  const holder = valueAt(copy, path.slice(0, -1))
  const key = path.at(-1) ?? ''
  if ((isMembers(holder) || Array.isArray(holder)) && key in holder) (holder as Record<string | number, unknown>)[key] = changed
  return copy
}
