/**
 * Rewrites most events of a stream without parsing them. An event that was parsed and rebuilt becomes a template: its bytes and its result,
 * both with placeholders for the values that differ. A later event that is byte for byte equal outside of the placeholders, and has a well-formed value in
 * each, is rewritten by copying its values into the result. Any other event is parsed. So nothing unknown can pass, at a fraction of the cost
 * of parsing. All streams of an upstream share its templates: the result is what parsing would give, whoever's stream made the template.
 */
import type { Ids, SealingIds } from '../wires/encrypted-ids.ts'
import { templateOf, type OwnName, type Part, type Placeholder, type Template as TemplateText } from './event-template.ts'
import { endOf } from './json-tokens.ts'
import { flat } from './sse-parser.ts'

/** The stream whose events are rewritten. `F`: what it must know of an event beside its text. */
export type TemplateStream<F> = {
  /** Called before an event with these facts is rewritten by its template. False: it must be parsed. */
  accept(facts: F): boolean
  /** Gets each metered text as it stands between its quotes. */
  meter(slice: string): void
  /** The JSON for one of `OWN_MARKS`. All but `sequence` are equal in all events of the stream. */
  own(name: OwnName): string
  /** What stands before the JSON of an event, by the beginning of that JSON. */
  head(json: string): string
  ids: Pick<Ids, 'encrypt'>
}

export type EventTemplates<F> = {
  /** The rewritten event, or null when it matches no template. */
  rewrite(raw: string): string | null
  /**
   * Makes a template of an event that was just parsed, unless there is one with these very facts. `rebuild` is called with the same event, marks in
   * its placeholders, and must use these ids and `OWN_MARKS` for the values of the stream; null when the event cannot be a template.
   */
  learn(
    raw: string,
    parsed: unknown,
    placeholders: readonly Placeholder[],
    facts: F,
    rebuild: (event: unknown, ids: SealingIds) => unknown,
  ): void
}

/** The templates of one upstream, by the shape of the client's stream. */
export type TemplateSets = Map<string, unknown[]>

type Template<F> = TemplateText & { facts: F }

const MAX_TEMPLATES = 32
/** Learning costs more than parsing: a stream whose events match no template is parsed throughout. */
const MAX_LEARNED = 16
/** Of a template, without the values. */
const MAX_LENGTH = 4096

/** `shape`: of the client's stream, where it decides the result. */
export function openEventTemplates<F>(sets: TemplateSets, shape: string, stream: TemplateStream<F>): EventTemplates<F> {
  const templates = (sets.get(shape) ?? []) as Template<F>[]
  if (templates.length === 0) sets.set(shape, templates)
  let learned = 0

  /** The parts of each template that this stream has used, with all that is equal in its events in one text. */
  const prepared = new Map<Template<F>, Part[]>()
  let lastId = ''
  let lastIdJson = ''

  function prepare(template: Template<F>): Part[] {
    const parts: Part[] = []
    for (const part of [stream.head(String(template.result[0])), ...template.result, '\n\n']) {
      const text = typeof part === 'object' && 'own' in part && part.own !== 'sequence' ? stream.own(part.own) : part
      const last = parts.at(-1)
      if (typeof text === 'string' && typeof last === 'string') parts[parts.length - 1] = last + text
      else parts.push(text)
    }
    const flattened = parts.map((part) => (typeof part === 'string' ? flat(part) : part))
    if (prepared.size >= MAX_TEMPLATES) prepared.clear()
    prepared.set(template, flattened)
    return flattened
  }

  function encrypted(prefix: string, id: string): string {
    if (id === lastId) return lastIdJson
    lastId = flat(id)
    lastIdJson = JSON.stringify(stream.ids.encrypt(prefix, lastId))
    return lastIdJson
  }

  function fill(template: Template<F>, raw: string): string {
    const { placeholders: filled } = template
    let event = ''
    for (const part of prepared.get(template) ?? prepare(template)) {
      if (typeof part === 'string') event += part
      else if (typeof part === 'number') event += raw.slice(spans[part * 2], spans[part * 2 + 1])
      else if ('own' in part) event += stream.own(part.own)
      else event += encrypted(part.prefix, raw.slice((spans[part.of * 2] ?? 0) + 1, (spans[part.of * 2 + 1] ?? 0) - 1))
    }
    for (let index = 0; index < filled.length; index++) {
      if (filled[index]?.metered) stream.meter(raw.slice((spans[index * 2] ?? 0) + 1, (spans[index * 2 + 1] ?? 0) - 1))
    }
    return event
  }

  return {
    rewrite(raw) {
      for (let n = 0; n < templates.length; n++) {
        const template = templates[n] as Template<F>
        if (!matches(template, raw)) continue
        if (!stream.accept(template.facts)) continue
        if (n > 0) templates.unshift(...templates.splice(n, 1))
        return fill(template, raw)
      }
      return null
    },
    learn(raw, parsed, placeholders, facts, rebuild) {
      if (learned >= MAX_LEARNED || templates.some((known) => known.facts === facts && matches(known, raw))) return
      learned++
      const template = templateOf(raw, parsed, placeholders, rebuild)
      if (!template || template.raw.join('').length > MAX_LENGTH) return
      templates.unshift({ ...template, facts })
      templates.length = Math.min(templates.length, MAX_TEMPLATES)
    },
  }
}

/** Start and end of each placeholder of the event that matched last: one array for all, because every event would need a new one. */
const spans: number[] = []

/** Sets `spans`; false when anything else differs. */
function matches({ raw: literals, placeholders }: TemplateText, raw: string): boolean {
  let at = literals[0]?.length ?? 0
  if (raw.slice(0, at) !== literals[0]) return false
  for (let index = 0; index < placeholders.length; index++) {
    const end = endOf(placeholders[index]?.kind ?? 'text', raw, at)
    const literal = literals[index + 1] ?? ''
    // Comparing slices compares memory; startsWith goes character by character.
    if (end < 0 || raw.slice(end, end + literal.length) !== literal) return false
    spans[index * 2] = at
    spans[index * 2 + 1] = end
    at = end + literal.length
  }
  return at === raw.length
}
