/** Error responses of the OpenAPI document: one per status, with its codes. Pure. */
import { Type } from 'typebox'
import { FAILURES, type FailureCode } from '../../src/domain/errors.ts'
import { LIMITS } from '../../src/domain/limits.ts'

/**
 * How failures are told. `problem`: they are also RFC 9457 problems. `brand`: in the names of headers. `limitHeaders`: further ones
 * of 429.
 */
type Form = { problem: boolean; brand: string; limitHeaders: Record<string, object> }

/** The responses of these codes. */
export function failureAnswers(codes: FailureCode[], form: Form): Record<string, object> {
  const byStatus = Map.groupBy(new Set(codes), (code) => FAILURES[code][0])
  return Object.fromEntries([...byStatus].sort(([a], [b]) => a - b).map(([status, found]) => [String(status), answer(status, found, form)]))
}

function answer(status: number, codes: FailureCode[], { problem, brand, limitHeaders }: Form): object {
  const schema = Type.Intersect([
    Type.Ref(problem ? 'Problem#' : 'Error#'),
    Type.Object({ error: Type.Object({ code: Type.Enum(codes) }) }),
  ])
  return {
    description: codes.map((code) => `\`${code}\`: ${FAILURES[code][2]}`).join('\n\n'),
    content: { [problem ? 'application/problem+json' : 'application/json']: { schema } },
    ...(status === 401 ? { headers: { 'WWW-Authenticate': { type: 'string', description: 'Bearer.' } } } : {}),
    ...(status === 429 ? { headers: { ...limited(brand), ...limitHeaders } } : {}),
    ...(status === 503 ? { headers: limited(brand) } : {}),
  }
}

function limited(brand: string): Record<string, object> {
  return {
    'Retry-After': { type: 'integer', description: 'Seconds to wait.' },
    [`X-${brand}-Limit`]: { type: 'string', enum: Object.keys(LIMITS), description: 'The limit that refused.' },
  }
}
