/** Receivers of usage, each with the published schema of a billing system: OpenMeter's and Lago's ingestion of events, and Stripe's meter events. They drop an id that they have. */
import { createServer, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Ajv } from 'ajv'
import type { Test } from 'tap'

type System = 'openmeter' | 'lago' | 'stripe'
/** `requests`: bodies that were accepted, with what they repeat. */
export type Billing = { url: string; events: Map<string, Record<string, unknown>>; requests: number; refused: string[] }

/** CloudEvents 1.0 in the JSON batch format, as OpenMeter takes it: `subject` and `type` select the meter's customer and the meter. */
const OPENMETER = {
  type: 'array',
  minItems: 1,
  items: {
    type: 'object',
    required: ['id', 'source', 'specversion', 'type', 'subject'],
    properties: {
      id: { type: 'string', minLength: 1 },
      source: { type: 'string', minLength: 1 },
      specversion: { const: '1.0' },
      type: { type: 'string', minLength: 1 },
      subject: { type: 'string', minLength: 1 },
      time: { type: 'string', pattern: '^\\d{4}-\\d\\d-\\d\\dT\\d\\d:\\d\\d:\\d\\d(\\.\\d+)?(Z|[+-]\\d\\d:\\d\\d)$' },
      datacontenttype: { const: 'application/json' },
      dataschema: { type: 'string', minLength: 1 },
      data: { type: 'object' },
    },
  },
}
const LAGO = {
  type: 'object',
  required: ['events'],
  properties: {
    events: {
      type: 'array',
      minItems: 1,
      maxItems: 100,
      items: {
        type: 'object',
        required: ['transaction_id', 'external_subscription_id', 'code'],
        additionalProperties: false,
        properties: {
          transaction_id: { type: 'string', minLength: 1 },
          external_subscription_id: { type: 'string', minLength: 1 },
          code: { type: 'string', minLength: 1 },
          timestamp: { type: ['string', 'integer'], pattern: '^\\d{10}(\\.\\d{1,3})?$' },
          properties: { type: 'object', additionalProperties: { type: ['string', 'integer', 'number'] } },
          precise_total_amount_cents: { type: 'string' },
        },
      },
    },
  },
}
/** Form fields. `timestamp` is whole seconds, `identifier` has at most 100 characters, the value is a whole number. */
const STRIPE = {
  type: 'object',
  required: ['event_name', 'payload[stripe_customer_id]', 'payload[value]'],
  additionalProperties: false,
  properties: {
    event_name: { type: 'string', minLength: 1, maxLength: 100 },
    identifier: { type: 'string', minLength: 1, maxLength: 100 },
    timestamp: { type: 'string', pattern: '^\\d{10}$' },
    'payload[stripe_customer_id]': { type: 'string', pattern: '^cus_\\w+$' },
    'payload[value]': { type: 'string', pattern: '^\\d+$' },
  },
}

const SYSTEMS: Record<System, { path: string; type: string; schema: object; read(text: string): unknown; events(body: never): Record<string, unknown>[]; id: string; answer: number }> = {
  openmeter: { path: '/api/v1/events', type: 'application/cloudevents-batch+json', schema: OPENMETER, read: JSON.parse, events: (body) => body, id: 'id', answer: 204 },
  lago: { path: '/api/v1/events/batch', type: 'application/json', schema: LAGO, read: JSON.parse, events: (body: { events: [] }) => body.events, id: 'transaction_id', answer: 200 },
  stripe: { path: '/v1/billing/meter_events', type: 'application/x-www-form-urlencoded', schema: STRIPE, read: (text) => Object.fromEntries(new URLSearchParams(text)), events: (body) => [body], id: 'identifier', answer: 200 },
}

/** Opens a receiver, which answers 400 to what its schema does not allow. */
export async function openBilling(t: Test, system: System): Promise<Billing> {
  const { path, type, schema, read, events, id, answer } = SYSTEMS[system]
  const isValid = new Ajv({ allowUnionTypes: true }).compile(schema)
  const billing: Billing = { url: '', events: new Map(), requests: 0, refused: [] }
  const server = createServer(async (request, response) => {
    const body = read(await textOf(request))
    const isExpected = request.method === 'POST' && request.url === path && request.headers['content-type'] === type && request.headers.authorization === 'Bearer secret'
    if (!isExpected || !isValid(body)) {
      billing.refused.push(`${request.method} ${request.url} ${request.headers['content-type']}: ${JSON.stringify(isValid.errors)}`)
      return void response.writeHead(400).end()
    }
    billing.requests++
    for (const event of events(body as never)) billing.events.set(String(event[id]), event)
    response.writeHead(answer).end()
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  t.teardown(() => server.close())
  billing.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return billing
}

async function textOf(request: IncomingMessage): Promise<string> {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  return Buffer.concat(parts).toString()
}
