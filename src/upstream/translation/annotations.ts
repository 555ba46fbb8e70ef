/** Citations and log probabilities: the same facts in the forms of both wires. */
import { annotation, wholeLogprobs } from '../wires/responses/response-allowed-members.ts'
import { isMembers, list, type Members } from '../wires/allowlist.ts'
import type { Ids } from '../wires/encrypted-ids.ts'

const annotations = list(annotation)

/** Chat's `{type, url_citation: {…}}` as the Responses wire's flat form. */
export function flatAnnotations(given: unknown, ids: Ids): Members[] {
  const flat = Array.isArray(given)
    ? given.map((one: unknown) =>
        isMembers(one) && isMembers(one['url_citation']) ? { ...one['url_citation'], type: 'url_citation' } : null,
      )
    : []
  return annotations(flat, ids) as Members[]
}

/** The Responses wire's citations of web pages as chat's nested form. */
export function nestedAnnotations(given: unknown): Members[] {
  if (!Array.isArray(given)) return []
  return given.filter(isMembers).flatMap(({ type, ...citation }) => (type === 'url_citation' ? { type, url_citation: citation } : []))
}

/** Chat's `logprobs` of a choice as the tokens of an `output_text` part. */
export function responseLogprobs(given: unknown, ids: Ids): Members[] {
  return isMembers(given) ? tokensOf(given['content'], ids) : []
}

/** The tokens of an `output_text` part as chat's `logprobs`; null without any. */
export function chatLogprobs(given: unknown, ids: Ids): Members | null {
  const tokens = tokensOf(given, ids)
  return tokens.length > 0 ? { content: tokens, refusal: null } : null
}

function tokensOf(given: unknown, ids: Ids): Members[] {
  return Array.isArray(given) ? (wholeLogprobs(given, ids) as Members[]) : []
}
