/**
 * Rewrites most events of a stream without parsing them. An event that was parsed and rebuilt becomes a template: its bytes and its result,
 * both with placeholders for the values that differ. A later event that is byte for byte equal outside of the placeholders, and has a well-formed value in
 * each, is rewritten by copying its values into the result. Any other event is parsed. So nothing unknown can pass, at a fraction of the cost
 * of parsing. All streams of an upstream share its templates: the result is what parsing would give, whoever's stream made the template.
 */
import type { Ids } from '../wires/encrypted-ids.ts'
import { templateOf, type OwnName, type Placeholder, type Template as TemplateText } from './event-template.ts'
import { endOf } from './json-tokens.ts'

/** The stream whose events are rewritten. `F`: what it must know of an event beside its text. */
export type TemplateStream<F> = {
  /** Called before an event with these facts is rewritten by its template. False: it must be parsed. */
  accept(facts: F): boolean
  /** Gets each metered text as it stands between its quotes. */
  meter(slice: string): void
  /** The JSON for one of `OWN_MARKS`. */
  own(name: OwnName): string
  ids: Ids
}

export type EventTemplates<F> = {
  /** The rewritten JSON, or null when the event matches no template. */
  rewrite(raw: string): string | null
  /**
   * Makes a template of an event that was just parsed. `rebuild` is called with the same event, marks in its placeholders, and must use these ids and
   * `OWN_MARKS` for the values of the stream; null when the event cannot be a template.
   */
  learn(raw: string, parsed: unknown, facts: F, rebuild: (event: unknown, ids: Ids) => unknown): void
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
export function openEventTemplates<F>(
  sets: TemplateSets,
  shape: string,
  placeholders: readonly Placeholder[],
  stream: TemplateStream<F>,
): EventTemplates<F> {
  const templates = (sets.get(shape) ?? []) as Template<F>[]
  if (templates.length === 0) sets.set(shape, templates)
  let learned = 0

  function fill({ result, placeholders: filled }: Template<F>, raw: string, spans: number[]): string {
    let json = ''
    for (const part of result) {
      if (typeof part === 'string') json += part
      else if (typeof part === 'number') json += raw.slice(spans[part * 2], spans[part * 2 + 1])
      else if ('own' in part) json += stream.own(part.own)
      else json += JSON.stringify(stream.ids.encrypt(part.prefix, raw.slice((spans[part.of * 2] ?? 0) + 1, (spans[part.of * 2 + 1] ?? 0) - 1)))
    }
    for (let index = 0; index < filled.length; index++) {
      if (filled[index]?.metered) stream.meter(raw.slice((spans[index * 2] ?? 0) + 1, (spans[index * 2 + 1] ?? 0) - 1))
    }
    return json
  }

  return {
    rewrite(raw) {
      for (let n = 0; n < templates.length; n++) {
        const template = templates[n] as Template<F>
        const spans = match(template, raw)
        if (!spans) continue
        if (!stream.accept(template.facts)) return null
        if (n > 0) templates.unshift(...templates.splice(n, 1))
        return fill(template, raw, spans)
      }
      return null
    },
    learn(raw, parsed, facts, rebuild) {
      if (learned >= MAX_LEARNED) return
      learned++
      const template = templateOf(raw, parsed, placeholders, rebuild)
      if (!template || template.raw.join('').length > MAX_LENGTH) return
      templates.unshift({ ...template, facts })
      templates.length = Math.min(templates.length, MAX_TEMPLATES)
    },
  }
}

/** Start and end of each placeholder in `raw`, or null when anything else differs. */
function match({ raw: literals, placeholders }: TemplateText, raw: string): number[] | null {
  let at = literals[0]?.length ?? 0
  if (raw.slice(0, at) !== literals[0]) return null
  const spans: number[] = []
  for (let index = 0; index < placeholders.length; index++) {
    const end = endOf(placeholders[index]?.kind ?? 'text', raw, at)
    const literal = literals[index + 1] ?? ''
    // Comparing slices compares memory; startsWith goes character by character.
    if (end < 0 || raw.slice(end, end + literal.length) !== literal) return null
    spans.push(at, end)
    at = end + literal.length
  }
  return at === raw.length ? spans : null
}
