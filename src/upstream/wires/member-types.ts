/**
 * Of which JSON types the members of a request may be. Only the type is judged: what the values mean is the model's to say, and a member
 * that is in no table passes whatever it is.
 */
import { Failure } from '../../domain/errors.ts'
import { isLongNumber } from '../../domain/strict-json.ts'
import { isMembers, type Members } from './member-allowlist.ts'

type Kind = { must: string; fits(value: unknown): boolean; entry?: { must: string; fits(value: unknown): boolean } }

const text: Kind = { must: 'a string', fits: (value) => typeof value === 'string' }
const object: Kind = { must: 'an object', fits: (value) => isMembers(value) && !isLongNumber(value) }
const list = (entry: Kind): Kind => ({ must: 'a list', fits: Array.isArray, entry })
const either = (one: Kind, other: Kind): Kind => ({
  ...other,
  must: `${one.must} or ${other.must}`,
  fits: (value) => one.fits(value) || other.fits(value),
})

const KINDS = {
  text,
  object,
  number: { must: 'a number', fits: (value: unknown) => typeof value === 'number' || isLongNumber(value) },
  flag: { must: 'true or false', fits: (value: unknown) => typeof value === 'boolean' },
  objects: list(object),
  texts: list(text),
  'text or object': either(text, object),
  'text or objects': either(text, list(object)),
  'text or texts': either(text, list(text)),
} satisfies Record<string, Kind>

/** Members by name. Null is as if a member were not there. */
export type Kinds = Record<string, keyof typeof KINDS>

/** Throws `invalid_request` naming the first member of `holder` that is of another kind. `path`: where the holder is, such as `messages[0].`. */
export function checkKinds(holder: Members, kinds: Kinds, path = ''): void {
  for (const name in kinds) {
    const value = Object.hasOwn(holder, name) ? holder[name] : undefined
    const kind: Kind | undefined = kinds[name] && KINDS[kinds[name]]
    if (kind && value !== undefined && value !== null) checkKind(value, kind, path + name)
  }
}

function checkKind(value: unknown, kind: Kind, param: string): void {
  if (!kind.fits(value)) throw invalid(param, `${param} must be ${kind.must}.`)
  if (!kind.entry || !Array.isArray(value)) return
  for (const [index, entry] of value.entries())
    if (!kind.entry.fits(entry)) throw invalid(`${param}[${index}]`, `${param}[${index}] must be ${kind.entry.must}.`)
}

export function invalid(param: string, message: string): Failure {
  return new Failure('invalid_request', { param, message })
}
