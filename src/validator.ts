/** Validation without favours: nothing is coerced in a body and nothing unknown is dropped; every fault is named. Query strings are text, so their numbers are read. */
import { Ajv, type Options, type ValidateFunction } from 'ajv'

const options: Options = { allErrors: true, useDefaults: true, removeAdditional: false, strict: false }

export type Compile = (route: { schema: object; httpPart?: string }) => ValidateFunction

/** Makes the compiler of the schemas of the Media API and of MCP. What is not the `body` of a request is text. */
export function strictValidator(): Compile {
  const formats = { 'date-time': (text: string) => /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text)) }
  const body = new Ajv({ ...options, formats, coerceTypes: false })
  const text = new Ajv({ ...options, formats, coerceTypes: true })
  return ({ schema, httpPart }) => (httpPart === 'body' ? body : text).compile(schema)
}
