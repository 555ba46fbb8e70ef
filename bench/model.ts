/**
 * Fake model upstream with minimal cost, a separate process: both wires, as JSON or as events, from prepared bytes. A mark in the prompt (`requests.ts`) chooses how
 * a stream arrives; without one it has 100 events, each a write of its own.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { CHAT, RESPONSES, type ModelWire } from './model-events.ts'
import { BURSTS, IDLE, PACED, THINKING } from './requests.ts'

const EVENTS = 100
const PACED_EVENTS = 20
const PACE_MS = 5
const THINKING_MS = 20
/** Events of one write in a stream of bursts, in turn. */
const BURST_SIZES = [1, 2, 3, 4]

/** Writes one part per iteration of the event loop, or per `paceMs`, so that they travel as separate writes, like those of a model. */
function writeParts(parts: Buffer[], response: ServerResponse, paceMs: number, at = 0): void {
  const next = parts[at]
  if (!next) return void response.end()
  response.write(next)
  if (paceMs > 0) setTimeout(writeParts, paceMs, parts, response, paceMs, at + 1)
  else setImmediate(writeParts, parts, response, paceMs, at + 1)
}

const streams = new Map<string, Buffer[]>()

/** The writes of a stream, prepared once. */
function partsOf(wire: ModelWire, events: number, inBursts: boolean): Buffer[] {
  const name = `${wire.path} ${events} ${inBursts}`
  const known = streams.get(name)
  if (known) return known
  const single = wire.stream(events)
  const parts: Buffer[] = []
  for (let at = 0; at < single.length; ) {
    const size = inBursts ? (BURST_SIZES[parts.length % BURST_SIZES.length] ?? 1) : 1
    parts.push(Buffer.concat(single.slice(at, at + size)))
    at += size
  }
  streams.set(name, parts)
  return parts
}

function answer(wire: ModelWire, body: string, response: ServerResponse): void {
  if (!body.includes('"stream":true')) {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': wire.answer.length }).end(wire.answer)
    return
  }
  if (body.includes(THINKING)) setTimeout(stream, THINKING_MS, wire, body, response)
  else stream(wire, body, response)
}

function stream(wire: ModelWire, body: string, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'text/event-stream; charset=utf-8' })
  if (body.includes(IDLE)) return void response.write(wire.stream(1)[0])
  const bursts = BURSTS.exec(body)?.[1]
  if (bursts !== undefined) writeParts(partsOf(wire, Number(bursts), true), response, 0)
  else if (body.includes(PACED) || body.includes(THINKING)) writeParts(partsOf(wire, PACED_EVENTS, false), response, PACE_MS)
  else writeParts(partsOf(wire, EVENTS, false), response, 0)
}

const server = createServer((request: IncomingMessage, response) => {
  const chunks: Buffer[] = []
  const wire = request.url?.endsWith(RESPONSES.path) ? RESPONSES : CHAT
  request.on('data', (chunk: Buffer) => chunks.push(chunk))
  request.on('end', () => (request.method === 'POST' ? answer(wire, Buffer.concat(chunks).toString('latin1'), response) : response.end('ok')))
})
server.keepAliveTimeout = 120_000
server.listen(Number(process.env['PORT']), '127.0.0.1')
process.once('SIGTERM', () => {
  server.close()
  server.closeAllConnections()
})
