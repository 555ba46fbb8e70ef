/**
 * Reads the body of a coding request: checks what we must know, and makes the call that upstreams are put to. All else passes as the client
 * wrote it.
 */
import { Failure } from '../../domain/errors.ts'
import type { Ids } from './encrypted-ids.ts'
import { invalid } from './member-types.ts'
import { isMembers, type Members } from './member-allowlist.ts'
import { MODEL, type Call, type Target } from './wire.ts'

/** A request that was found valid. */
export type Draft = {
  stream: boolean
  /** Tokens that the client allows at most, over all choices; null when it named no limit. */
  maxOutputTokens: number | null
  /** Choices asked for; each is an answer of its own. */
  choices: number
  /** `cap`: output tokens that the plan allows over all choices. `now`: epoch seconds. Uses the body up: it is changed in place. */
  call(cap: number, ids: Ids, now: number): Call
}

/** The members of a body. Throws unless it is an object that names our model. */
export function readBody(body: unknown): Members {
  if (!isMembers(body)) throw new Failure('invalid_request', { message: 'The request body must be a JSON object.' })
  const model = own(body, 'model')
  if (model === undefined || model === null || model === '') throw invalid('model', `model is required. The only model is ${MODEL}.`)
  if (typeof model !== 'string') throw invalid('model', 'model must be a string.')
  if (model !== MODEL) throw new Failure('model_not_found', { param: 'model' })
  return body
}

/** A member of the body itself, never of its prototype. */
export function own(body: Members, name: string): unknown {
  return Object.hasOwn(body, name) ? body[name] : undefined
}

export function readFlag(body: Members, name: string): boolean {
  const value = own(body, name)
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalid(name, `${name} must be true or false.`)
  return value
}

/** A positive whole number, or null when it is absent or null. */
export function readCount(body: Members, name: string, most = Number.MAX_SAFE_INTEGER): number | null {
  const value = own(body, name)
  if (value === undefined || value === null) return null
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1 || value > most) {
    throw invalid(
      name,
      most === Number.MAX_SAFE_INTEGER ? `${name} must be a positive whole number.` : `${name} must be a whole number from 1 to ${most}.`,
    )
  }
  return value
}

/** Puts the upstream's own ids back into these members of an object, in place. */
export function restoreIds(holder: Members, names: readonly string[], ids: Ids): void {
  for (const name of names) {
    const value = own(holder, name)
    if (typeof value === 'string') holder[name] = ids.back(value)
  }
}

/**
 * Writes `rest` for each upstream with what differs between them in front: the model, and the limit under the name it is known by there.
 */
export function bodyWriter(rest: Members, limitField: string, limit: number, fixedField: boolean): (target: Target) => string {
  const tail = JSON.stringify(rest).slice(1)
  return ({ model, maxTokensField }) => {
    const field = fixedField ? limitField : (maxTokensField ?? limitField)
    const front = JSON.stringify({ model, [field]: limit }).slice(0, -1)
    return tail === '}' ? `${front}}` : `${front},${tail}`
  }
}
