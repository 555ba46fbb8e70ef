/**
 * Validation of coding requests: the model name and the JSON types of known members. Values are not checked, and unknown members pass: both
 * are up to the model.
 */
import { Failure } from '../../domain/errors.ts'
import { isLongNumber } from '../../json/strict-json.ts'
import { isMembers, own, type Members } from './allowlist.ts'
import { MODEL } from './model-name.ts'

type MemberType = { must: string; matches(value: unknown): boolean; entry?: { must: string; matches(value: unknown): boolean } }

const string: MemberType = { must: 'a string', matches: (value) => typeof value === 'string' }
const object: MemberType = { must: 'an object', matches: (value) => isMembers(value) && !isLongNumber(value) }
const list = (entry: MemberType): MemberType => ({ must: 'a list', matches: Array.isArray, entry })
const either = (one: MemberType, other: MemberType): MemberType => ({
  ...other,
  must: `${one.must} or ${other.must}`,
  matches: (value) => one.matches(value) || other.matches(value),
})

const TYPES = {
  string,
  object,
  number: { must: 'a number', matches: (value: unknown) => typeof value === 'number' || isLongNumber(value) },
  boolean: { must: 'true or false', matches: (value: unknown) => typeof value === 'boolean' },
  objects: list(object),
  strings: list(string),
  'string or object': either(string, object),
  'string or objects': either(string, list(object)),
  'string or strings': either(string, list(string)),
} satisfies Record<string, MemberType>

/** The type of each member by name. Null counts as absent. */
export type MemberTypes = Record<string, keyof typeof TYPES>

/** Throws `invalid_request` naming the first member of another type. `path`: the place of the holder, such as `messages[0].`. */
export function checkTypes(holder: Members, types: MemberTypes, path = ''): void {
  for (const name in types) {
    const value = own(holder, name)
    const type: MemberType | undefined = types[name] && TYPES[types[name]]
    if (type && value !== undefined && value !== null) checkType(value, type, path + name)
  }
}

/** Leaves out, in place, members of another type: settings of agents, which must not fail a request. */
export function dropMistyped(holder: Members, types: MemberTypes): void {
  for (const name in types) if (types[name] && !TYPES[types[name]].matches(own(holder, name))) Reflect.deleteProperty(holder, name)
}

function checkType(value: unknown, type: MemberType, param: string): void {
  if (!type.matches(value)) throw invalid(param, `${param} must be ${type.must}.`)
  if (!type.entry || !Array.isArray(value)) return
  for (const [index, entry] of value.entries())
    if (!type.entry.matches(entry)) throw invalid(`${param}[${index}]`, `${param}[${index}] must be ${type.entry.must}.`)
}

/** Throws `invalid_request` for a tool without a type: it would be left out as an unknown one. */
export function checkTools(body: Members): void {
  for (const [index, tool] of ((own(body, 'tools') ?? []) as Members[]).entries())
    if (typeof own(tool, 'type') !== 'string') throw invalid(`tools[${index}].type`, `tools[${index}].type must be a string.`)
}

/** The members of a body. Throws `invalid_request` unless it is an object that names a model, and `model_not_found` for another model. */
export function readBody(body: unknown): Members {
  if (!isMembers(body)) throw new Failure('invalid_request', { message: 'The request body must be a JSON object.' })
  const model = own(body, 'model')
  if (model === undefined || model === null || model === '') throw invalid('model', `model is required. The only model is ${MODEL}.`)
  if (typeof model !== 'string') throw invalid('model', 'model must be a string.')
  if (model !== MODEL) throw new Failure('model_not_found', { param: 'model' })
  return body
}

/** A boolean member, false when it is absent or null. Throws `invalid_request`. */
export function readBoolean(body: Members, name: string): boolean {
  const value = own(body, name)
  if (value === undefined || value === null) return false
  if (typeof value !== 'boolean') throw invalid(name, `${name} must be true or false.`)
  return value
}

/** A positive whole number, or null when it is absent or null. Throws `invalid_request`. */
export function readCount(body: Members, name: string, max = Number.MAX_SAFE_INTEGER): number | null {
  const value = own(body, name)
  if (value === undefined || value === null) return null
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1 || value > max) {
    throw invalid(
      name,
      max === Number.MAX_SAFE_INTEGER ? `${name} must be a positive whole number.` : `${name} must be a whole number from 1 to ${max}.`,
    )
  }
  return value
}

/** A limit of tokens, or null for none: absent, null, or -1, which many clients send. Throws `invalid_request`. */
export function readLimit(body: Members, name: string): number | null {
  return own(body, name) === -1 ? null : readCount(body, name)
}

/** `invalid_request` at `param`, with a public sentence. */
export function invalid(param: string, message: string): Failure {
  return new Failure('invalid_request', { param, message })
}
