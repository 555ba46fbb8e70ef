// A webhook receiver with Node alone: SVC_API_KEY=… PORT=3000 node receiver.mjs
import { createHmac, timingSafeEqual } from 'node:crypto'
import { createServer } from 'node:http'

const apiKey = process.env.SVC_API_KEY
const toleranceSeconds = 300
const bodyBytesMax = 1024 * 1024
const handled = new Set() // in production: a unique constraint in your database

const hmac = (content, encoding) => createHmac('sha256', apiKey).update(content).digest(encoding)

function equal(given, expected) {
  const [a, b] = [Buffer.from(given), Buffer.from(expected)]
  return a.length === b.length && timingSafeEqual(a, b)
}

// X-SVC-Signature: sha256=<hex> over the raw body.
function isSigned(headers, rawBody) {
  return equal(headers['x-svc-signature'] ?? '', `sha256=${hmac(rawBody, 'hex')}`)
}

// Standard Webhooks: v1,<base64> over id, timestamp and raw body; an old timestamp is a recorded request.
function isFresh(headers, rawBody) {
  const { 'webhook-id': id = '', 'webhook-timestamp': timestamp = '', 'webhook-signature': signatures = '' } = headers
  const age = Math.abs(Date.now() / 1000 - Number(timestamp))
  if (!/^\d+$/.test(timestamp) || age > toleranceSeconds) return false
  const expected = `v1,${hmac(Buffer.concat([Buffer.from(`${id}.${timestamp}.`), rawBody]), 'base64')}`
  return signatures.split(' ').some((signature) => equal(signature, expected))
}

async function receive(request, response) {
  const chunks = []
  let bytes = 0
  for await (const chunk of request) {
    bytes += chunk.length
    if (bytes > bodyBytesMax) return response.writeHead(413, { connection: 'close' }).end()
    chunks.push(chunk)
  }
  const rawBody = Buffer.concat(chunks)
  if (!isSigned(request.headers, rawBody) || !isFresh(request.headers, rawBody)) return response.writeHead(401).end()

  const { event, data } = JSON.parse(rawBody)
  const once = `${event} ${data.task_id}` // a failed task sends two events with one task_id
  if (handled.has(once)) return response.writeHead(200).end('duplicate')
  handled.add(once)
  console.log(event, data.task_id)
  response.writeHead(200).end('handled')
}

if (!apiKey) throw new Error('SVC_API_KEY is not set')
const server = createServer((request, response) => receive(request, response).catch(() => response.destroy()))
server.listen(Number(process.env.PORT ?? 3000), () => console.log('listening on', server.address().port))
