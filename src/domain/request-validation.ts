/** Request validation: no coercion in bodies, unknown members are refused, every fault of an ordinary body is reported. Numbers in query strings are parsed. */
import { Ajv, type Options, type ValidateFunction } from 'ajv'
import { Failure, paramOfPointer, type FieldError } from './errors.ts'
import { inWords } from './field-patterns.ts'

const options: Options = {
  allErrors: true,
  useDefaults: true,
  removeAdditional: false,
  strict: false,
  meta: false,
  // Schemas of one `$id` may differ from one app to the next.
  addUsedSchema: false,
  validateSchema: false,
  discriminator: true,
}

export type Compile = (route: { schema: object; httpPart?: string }) => ValidateFunction

const formats = { 'date-time': (text: string) => DATE_TIME.test(text) && isTime(text) }
/** One for all routes: an instance compiles a schema once, and many routes share theirs. */
const body = new Ajv({ ...options, formats, coerceTypes: false })
const firstFault = new Ajv({ ...options, formats, coerceTypes: false, allErrors: false })
const text = new Ajv({ ...options, formats, coerceTypes: true })

/** The schema compiler of every route that validates, and of MCP. Everything but the `body` of a request is text. */
export const strictValidator: Compile = ({ schema, httpPart }) => {
  if (httpPart !== 'body') return text.compile(schema)
  const all = body.compile(schema)
  let first: ValidateFunction | null = null
  const validate = ((data: unknown) => {
    // Each value can have a fault, and Ajv cannot stop after some of them.
    const chosen = hasAtMost(MOST_VALUES, data) ? all : (first ??= firstFault.compile(schema))
    const isValid = chosen(data)
    validate.errors = chosen.errors ?? null
    return isValid
  }) as ValidateFunction
  return validate
}

const DATE_TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/

/** Whether a time in the form of RFC 3339 exists: `Date` would turn 31 February into a day of March. */
export function isTime(text: string): boolean {
  const day = text.slice(0, 10)
  const midnight = new Date(`${day}T00:00:00Z`)
  return !Number.isNaN(Date.parse(text)) && !Number.isNaN(midnight.getTime()) && midnight.toISOString().startsWith(day)
}

/** Values of an ordinary body. Of a larger one the first fault is reported. */
const MOST_VALUES = 2_000

/** Whether a JSON value has at most so many values. Visits no more than that. */
function hasAtMost(count: number, value: unknown): boolean {
  let left = count
  const open = [value]
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    if (typeof next !== 'object' || next === null) continue
    for (const name in next) {
      if (--left < 0) return false
      const inner = (next as Record<string, unknown>)[name]
      if (typeof inner === 'object' && inner !== null) open.push(inner)
    }
  }
  return true
}

/** A validation error: the members that Ajv and Fastify share. */
export type Fault = { keyword?: string; instancePath: string; params: Record<string, unknown>; message?: string; propertyName?: string }

/** Limit of reported faults: a body can have one per byte. */
const MOST_FAULTS = 20

/** Each faulty member with a sentence that follows its path. */
export function faultsOf(faults: Fault[]): FieldError[] {
  return (
    faults
      // Repeat the fault of a member's name, or of the member that chooses a branch.
      .filter(({ keyword }) => keyword !== 'propertyNames' && keyword !== 'discriminator')
      .slice(0, MOST_FAULTS)
      .map((fault) => ({
        path: pathOf(fault),
        code: fault.keyword ?? 'invalid',
        message: WORDS[fault.keyword ?? '']?.(fault.params) ?? fault.message ?? 'is not valid',
      }))
  )
}

/** `invalid_request` for faulty fields: the first in the message, all in `errors`. `part`: what they are, where they are not in a body. */
export function invalid(errors: FieldError[], part?: 'header' | 'query parameter'): Failure {
  const [first] = errors
  const name = part && first ? `The ${part} ${first.path.slice(1)}` : first?.path || 'The body'
  return new Failure('invalid_request', {
    errors,
    ...(first ? { message: `${name} ${first.message}.`, param: paramOfPointer(first.path) } : {}),
  })
}

/** The JSON Pointer of a fault; for a missing, unknown or misnamed member it points to that member. */
function pathOf({ instancePath, params, propertyName }: Fault): string {
  const member =
    params['missingProperty'] ?? params['additionalProperty'] ?? (params['requiredProperties'] as string[] | undefined)?.[0] ?? propertyName
  return typeof member === 'string' ? `${instancePath}/${member.replaceAll('~', '~0').replaceAll('/', '~1')}` : instancePath
}

const TYPES: Record<string, string> = {
  string: 'a string',
  integer: 'a whole number',
  number: 'a number',
  boolean: 'true or false',
  object: 'an object',
  array: 'a list',
  null: 'null',
}

/** Sentences by JSON Schema keyword; other keywords use the validator's message. */
const WORDS: Record<string, (params: Record<string, unknown>) => string | null> = {
  required: () => 'is required',
  additionalProperties: () => 'is not a field of this request',
  type: ({ type }) =>
    `must be ${[type]
      .flat()
      .map((name) => TYPES[String(name)] ?? String(name))
      .join(' or ')}`,
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
