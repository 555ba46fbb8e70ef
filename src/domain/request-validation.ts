/** Validation without favours: nothing is coerced in a body and nothing unknown is dropped; every fault is named. Query strings are text, so their numbers are read. */
import { Ajv, type Options, type ValidateFunction } from 'ajv'
import { Failure, type FieldError } from './errors.ts'
import { inWords } from './field-patterns.ts'

const options: Options = { allErrors: true, useDefaults: true, removeAdditional: false, strict: false, meta: false, validateSchema: false }

export type Compile = (route: { schema: object; httpPart?: string }) => ValidateFunction

/** Makes the compiler of the schemas of the Media API and of MCP. What is not the `body` of a request is text. */
export function strictValidator(): Compile {
  const formats = { 'date-time': (text: string) => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text)) }
  const body = new Ajv({ ...options, formats, coerceTypes: false })
  const text = new Ajv({ ...options, formats, coerceTypes: true })
  return ({ schema, httpPart }) => (httpPart === 'body' ? body : text).compile(schema)
}

/** What a validator says of one fault: what Ajv and Fastify have in common. */
export type Fault = { keyword?: string; instancePath: string; params: Record<string, unknown>; message?: string; propertyName?: string }

/** A body can be wrong in as many places as it has bytes. */
const MOST_FAULTS = 20

/** Each faulty place, and what it must be, in words that follow its path. */
export function faultsOf(faults: Fault[]): FieldError[] {
  return faults
    // It only repeats that a name was wrong.
    .filter(({ keyword }) => keyword !== 'propertyNames')
    .slice(0, MOST_FAULTS)
    .map((fault) => ({ path: pathOf(fault), code: fault.keyword ?? 'invalid', message: WORDS[fault.keyword ?? '']?.(fault.params) ?? fault.message ?? 'is not valid' }))
}

/** The failure for faulty fields: the first in words, all in `errors`. */
export function invalid(errors: FieldError[]): Failure {
  const [first] = errors
  return new Failure('invalid_request', { errors, ...(first ? { message: `${first.path || 'The body'} ${first.message}.`, param: first.path.slice(1).replaceAll('/', '.') || null } : {}) })
}

/** A JSON Pointer to the place at fault: for a missing, an unknown or a wrongly named member, to that member. */
function pathOf({ instancePath, params, propertyName }: Fault): string {
  const member = params['missingProperty'] ?? params['additionalProperty'] ?? (params['requiredProperties'] as string[] | undefined)?.[0] ?? propertyName
  return typeof member === 'string' ? `${instancePath}/${member.replaceAll('~', '~0').replaceAll('/', '~1')}` : instancePath
}

const TYPES: Record<string, string> = { string: 'a string', integer: 'a whole number', number: 'a number', boolean: 'true or false', object: 'an object', array: 'a list', null: 'null' }

/** By keyword of JSON Schema. Where nothing is given, the validator's own words do. */
const WORDS: Record<string, (params: Record<string, unknown>) => string | null> = {
  required: () => 'is required',
  additionalProperties: () => 'is not a field of this request',
  type: ({ type }) => `must be ${[type].flat().map((name) => TYPES[String(name)] ?? String(name)).join(' or ')}`,
  enum: ({ allowedValues }) => (Array.isArray(allowedValues) ? `must be one of ${allowedValues.join(', ')}` : null),
  const: ({ allowedValue }) => `must be ${JSON.stringify(allowedValue)}`,
  pattern: ({ pattern }) => inWords(String(pattern)),
  format: ({ format }) => (format === 'date-time' ? 'must be a date and time with its zone, such as 2026-11-21T08:30:00Z' : null),
  minLength: ({ limit }) => (limit === 1 ? 'must not be empty' : `must have at least ${limit} characters`),
  maxLength: ({ limit }) => `must have at most ${limit} characters`,
  minimum: ({ limit }) => `must be at least ${limit}`,
  maximum: ({ limit }) => `must be at most ${limit}`,
  minItems: ({ limit }) => `must have at least ${limit === 1 ? 'one entry' : `${limit} entries`}`,
  maxItems: ({ limit }) => `must have at most ${limit} entries`,
  maxProperties: ({ limit }) => `must have at most ${limit} members`,
}
