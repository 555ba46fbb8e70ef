/** Error body: OpenAI's `error` with extra members beside it; on the Media API also an RFC 9457 problem. */
import type { Failure } from '../../src/domain/errors.ts'

export const PROBLEM = 'application/problem+json; charset=utf-8'

/** The body of a failure; `problem` adds the members of RFC 9457. */
export function bodyOf(failure: Failure, requestId: string, problem: boolean): Record<string, unknown> {
  const { facts } = failure
  const members = problem
    ? {
        type: `about:blank#${failure.code}`,
        title: failure.code.replaceAll('_', ' '),
        status: failure.status,
        detail: failure.message,
        instance: `urn:request:${requestId}`,
      }
    : {}
  return {
    ...members,
    error: { message: failure.message, type: failure.type, code: failure.code, param: facts.param ?? null, ...facts.inside },
    ...(facts.errors ? { errors: facts.errors } : {}),
    ...facts.beside,
  }
}
