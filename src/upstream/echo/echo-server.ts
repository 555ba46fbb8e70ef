/**
 * The built-in upstream: a small server on loopback that speaks both wires, so that a fresh checkout answers. It is no model
 * (`docs/echo.md`); it takes the same way as a real one, over HTTP and with a key.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { chatEvents, chatJson, type ChatBody, type Seal } from './echo-chat.ts'
import { responsesEvents, responsesJson, type ResponsesBody } from './echo-responses.ts'

export type Echo = { url: string; token: string; close(): Promise<void> }

/**
 * Starts it on a free port of 127.0.0.1, with a key of its own that nobody else knows. What it stumbles over is the request's fault, as
 * everything else here is the same for everybody: it says so, and `log` is told why.
 */
export async function openEcho(log: { error(facts: object, message: string): void }): Promise<Echo> {
  const token = randomBytes(24).toString('base64url')
  const server = createServer((request, response) => {
    respond(request, response, token).catch((err: unknown) => {
      if (request.errored || response.destroyed) return
      log.error({ err }, 'the echo could not answer a request')
      if (response.headersSent) response.destroy()
      else json(response, 400, problem('invalid_value', 'Not a request of either wire.'))
    })
  })
  server.keepAliveTimeout = 60_000
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    token,
    async close() {
      server.close()
      server.closeAllConnections()
    },
  }
}

async function respond(request: IncomingMessage, response: ServerResponse, token: string): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  if (!allowed(request.headers.authorization ?? '', token)) return json(response, 401, problem('invalid_api_key', 'Unknown key.'))
  const body = parsed(Buffer.concat(chunks))
  const seal = { id: randomBytes(12).toString('hex'), model: 'echo', created: Math.floor(Date.now() / 1000) }
  const { messages, input } = body as { messages?: unknown; input?: unknown }
  if (request.url === '/v1/chat/completions' && Array.isArray(messages)) return chat(response, body as ChatBody, seal)
  if (request.url === '/v1/responses' && (typeof input === 'string' || Array.isArray(input)))
    return responses(response, body as ResponsesBody, seal)
  json(response, 400, problem('invalid_value', 'Not a request of either wire.'))
}

function allowed(header: string, token: string): boolean {
  const given = Buffer.from(header)
  const expected = Buffer.from(`Bearer ${token}`)
  return given.length === expected.length && timingSafeEqual(given, expected)
}

function parsed(bytes: Buffer): object {
  try {
    return (JSON.parse(bytes.toString('utf8')) as object | null) ?? {}
  } catch {
    return {}
  }
}

function chat(response: ServerResponse, body: ChatBody, seal: Seal): Promise<void> | void {
  return body.stream ? stream(response, chatEvents(body, seal)) : json(response, 200, chatJson(body, seal))
}

function responses(response: ServerResponse, body: ResponsesBody, seal: Seal): Promise<void> | void {
  return body.stream ? stream(response, responsesEvents(body, seal)) : json(response, 200, responsesJson(body, seal))
}

function problem(code: string, message: string): object {
  return { error: { message, type: 'invalid_request_error', code, param: null } }
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

async function stream(response: ServerResponse, events: Iterable<{ event?: string; data: string; waitMs: number }>): Promise<void> {
  const left = once(response, 'close').catch(() => {})
  for (const { event, data, waitMs } of events) {
    // The request is read with the first event: from here on it is known to be of the wire.
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    if (waitMs > 0) await Promise.race([new Promise((resolve) => setTimeout(resolve, waitMs)), left])
    if (response.destroyed) return
    const room = response.write(`${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`)
    if (!room) await Promise.race([once(response, 'drain'), left])
  }
  response.end()
}
