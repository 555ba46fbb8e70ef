/** OpenAPI description of a route: its validation schema, and its responses from `openapi-operations.ts`. Pure. */
import type { FastifySchema, RouteOptions } from 'fastify'
import type { FailureCode } from '../../src/domain/errors.ts'
import { failureAnswers } from './error-responses.ts'
import { OPERATIONS, type Answer, type Operation } from './openapi-operations.ts'

export type DocumentedRoute = Pick<RouteOptions, 'url' | 'schema' | 'config'> & { method: string }

export type Documented = {
  routes: DocumentedRoute[]
  /** Schemas that a plugin shares between its routes, by `$id`. */
  shared: Map<string, object>
}

/** True for routes of the API: those with a product, and those in `OPERATIONS`. Pass-through routes are described by the service behind them. */
export function isDocumented({ method, url, config }: DocumentedRoute): boolean {
  return (config?.api !== undefined && !config.streamed) || `${method} ${url}` in OPERATIONS
}

const UNDESCRIBED: Partial<Operation> = { answers: { 200: { description: 'Success.' } } }

/** The route's own schema with its documentation. A route of a third-party plugin may bring all of it. `brand`: in the names of headers. */
export function schemaOf(route: DocumentedRoute, brand: string): FastifySchema {
  const { method, url, schema = {}, config } = route
  const own = { summary: `${method} ${url}`, tags: ['Plugins'], operationId: operationId(method, url), ...schema }
  const {
    answers = {},
    failures = [],
    limitHeaders = {},
    example,
    ...operation
  }: Partial<Operation> = OPERATIONS[`${method} ${url}`] ?? UNDESCRIBED
  const security = config?.api === undefined ? [] : [{ [config.api]: [] }]
  const response = {
    ...failureAnswers([...commonFailures(route), ...failures], { problem: config?.problem === true, brand, limitHeaders }),
    ...Object.fromEntries(Object.entries(answers).map((answer) => described(answer, brand))),
  }
  const query = schema.querystring as ParametersSchema | undefined
  const body = operation.body ?? (schema.body as object | undefined)
  return {
    ...own,
    ...operation,
    // A parameter with a default may be left out: its validated type has it nevertheless.
    ...(query
      ? { querystring: { ...query, required: query.required?.filter((name) => !('default' in (query.properties?.[name] ?? {}))) ?? [] } }
      : {}),
    ...(body ? { body: example ? { ...body, examples: [example] } : body } : {}),
    security,
    response: { ...response, ...(schema.response as object | undefined) },
  } as FastifySchema
}

type ParametersSchema = { properties?: Record<string, object>; required?: string[] }

function operationId(method: string, url: string): string {
  return `${method.toLowerCase()}${url.replaceAll(/[^A-Za-z0-9]+([A-Za-z0-9]?)/g, (_, first: string) => first.toUpperCase())}`
}

function described([status, { description, content = {}, headers }]: [string, Answer], brand: string): [string, object] {
  const bodies = Object.fromEntries(Object.entries(content).map(([type, schema]) => [type, { schema }]))
  const named = headers && Object.fromEntries(Object.entries(headers).map(([name, schema]) => [name.replace('Brand', brand), schema]))
  const more = named ? { headers: named } : {}
  return [status, Object.keys(bodies).length > 0 ? { description, content: bodies, ...more } : { description, type: 'null', ...more }]
}

/** Error codes that follow from a route's config. */
function commonFailures({ method, schema = {}, config }: DocumentedRoute): FailureCode[] {
  const codes: FailureCode[] = ['internal', 'unavailable']
  if (config?.api !== undefined) codes.push('invalid_api_key', 'wrong_product', 'key_suspended', 'rate_limited')
  if (config?.creates) codes.push('plan_inactive')
  if (method === 'POST') codes.push('invalid_json', 'unsupported_media_type', 'payload_too_large', 'request_timeout')
  if (schema.body || schema.querystring || config?.admits) codes.push('invalid_request')
  return codes
}
