/** Error responses of the OpenAPI document: one per status, with its codes. Pure. */
import { Type } from 'typebox'
import { FAILURES, type FailureCode } from '../../src/domain/errors.ts'
import { LIMITS } from '../../src/domain/limits.ts'

/** Of 429 and 503. */
const LIMITED = {
  'Retry-After': { type: 'integer', description: 'Seconds to wait.' },
  'X-SVC-Limit': { type: 'string', enum: Object.keys(LIMITS), description: 'The limit that refused.' },
}

/** The responses of these codes. `problem`: they are also RFC 9457 problems. `limitHeaders`: further ones of 429. */
export function failureAnswers(codes: FailureCode[], problem: boolean, limitHeaders: Record<string, object>): Record<string, object> {
  const byStatus = Map.groupBy(new Set(codes), (code) => FAILURES[code][0])
  return Object.fromEntries(
    [...byStatus].sort(([a], [b]) => a - b).map(([status, found]) => [String(status), answer(status, found, problem, limitHeaders)]),
  )
}

function answer(status: number, codes: FailureCode[], problem: boolean, limitHeaders: Record<string, object>): object {
  const schema = Type.Intersect([
    Type.Ref(problem ? 'Problem#' : 'Error#'),
    Type.Object({ error: Type.Object({ code: Type.Enum(codes) }) }),
  ])
  return {
    description: codes.map((code) => `\`${code}\`: ${FAILURES[code][2]}`).join('\n\n'),
    content: { [problem ? 'application/problem+json' : 'application/json']: { schema } },
    ...(status === 401 ? { headers: { 'WWW-Authenticate': { type: 'string', description: 'Bearer.' } } } : {}),
    ...(status === 429 ? { headers: { ...LIMITED, ...limitHeaders } } : {}),
    ...(status === 503 ? { headers: LIMITED } : {}),
  }
}
