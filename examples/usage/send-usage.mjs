// Sends usage records, one CloudEvent a line on standard input, to a billing system. OpenMeter and Lago drop an id that they have; Stripe does for a day.
//
//   tollgate usage export --since 2026-11-01 --until 2026-12-01 | node send-usage.mjs openmeter|lago|stripe <address> [customers.json]
//
// The API key is in BILLING_KEY. customers.json names the customer of each tenant at Stripe: {"acme": "cus_NciAYcXfLnqBoz"}.
import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'

/** Events in one request: what Lago takes. */
const BATCH = 100
const CODING = 'dev.tollgate.usage.coding.v1'

const [system, address, customersFile] = process.argv.slice(2)
const customers = customersFile === undefined ? {} : JSON.parse(readFileSync(customersFile, 'utf8'))
const authorization = `Bearer ${process.env.BILLING_KEY ?? ''}`

const seconds = (time) => Date.parse(time) / 1000
/** Millionths of a currency unit, a whole number. */
const micro = (cost) => Math.round(Number(cost) * 1e6)

const lagoEvent = ({ id, type, time, data }) => ({
  transaction_id: id,
  external_subscription_id: `${data.tenant}/${data.plan}`,
  code: type === CODING ? 'tollgate_coding' : 'tollgate_media',
  timestamp: String(seconds(time)),
  properties: type === CODING ? { charged_tokens: data.charged_tokens, input_tokens: data.input_tokens, cached_input_tokens: data.cached_input_tokens, output_tokens: data.output_tokens } : { cost: data.cost, kind: data.kind },
})

function stripeEvent({ id, type, time, data }) {
  const customer = customers[data.tenant]
  if (customer === undefined) throw new Error(`${customersFile ?? 'customers.json'} names no customer of tenant ${data.tenant}.`)
  return new URLSearchParams({
    event_name: type === CODING ? 'tollgate_tokens' : 'tollgate_media_micro',
    identifier: id,
    timestamp: String(Math.floor(seconds(time))),
    'payload[stripe_customer_id]': customer,
    'payload[value]': String(type === CODING ? data.charged_tokens : micro(data.cost)),
  })
}

const SEND = {
  openmeter: (events) => post('/api/v1/events', JSON.stringify(events), 'application/cloudevents-batch+json'),
  lago: (events) => post('/api/v1/events/batch', JSON.stringify({ events: events.map(lagoEvent) }), 'application/json'),
  async stripe(events) {
    for (const event of events) await post('/v1/billing/meter_events', stripeEvent(event).toString(), 'application/x-www-form-urlencoded')
  },
}

async function post(path, body, type) {
  const answer = await fetch(new URL(path, address), { method: 'POST', body, headers: { 'content-type': type, authorization } })
  if (!answer.ok) throw new Error(`${path} answered ${answer.status}: ${await answer.text()}`)
}

const send = SEND[system]
if (!send || address === undefined) throw new Error(`The arguments are ${Object.keys(SEND).join(', ')} and an address.`)
const batch = []
for await (const line of createInterface({ input: process.stdin })) {
  batch.push(JSON.parse(line))
  if (batch.length === BATCH) await send(batch.splice(0))
}
if (batch.length > 0) await send(batch)
