/**
 * HTTP server of the built-in echo: an upstream on loopback that speaks every wire, so that a fresh checkout answers. It is not a model
 * (`docs/echo.md`) and is called as a real one is, over HTTP and with an API key.
 */
import { randomBytes, timingSafeEqual } from 'node:crypto'
import { once } from 'node:events'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { parsedMembers } from '../wires/allowlist.ts'
import { chatEvents, chatJson, type AnswerHead, type ChatBody } from './echo-chat.ts'
import { messagesEvents, messagesJson, type MessagesBody } from './echo-messages.ts'
import { responsesEvents, responsesJson, type ResponsesBody } from './echo-responses.ts'

/** Not imported: an import reads all members of the module, and so loads the whole library of `fetch`, 6 MB. */
const { createServer } = process.getBuiltinModule('node:http')

type Body = ChatBody & MessagesBody & ResponsesBody
type EchoWire = {
  said: 'messages' | 'input'
  json(body: Body, head: AnswerHead): object
  events(body: Body, head: AnswerHead): Iterable<{ event?: string; data: string; waitMs: number }>
}

/** By path. `said`: the member with the conversation. */
const WIRES: Record<string, EchoWire> = {
  '/v1/chat/completions': { said: 'messages', json: chatJson, events: chatEvents },
  '/v1/responses': { said: 'input', json: responsesJson, events: responsesEvents },
  '/v1/messages': { said: 'messages', json: messagesJson, events: messagesEvents },
}

export type Echo = { url: string; token: string; close(): Promise<void> }

/**
 * Starts it on a free port of 127.0.0.1 with a random API key. A request that it cannot process gets a 400, and the error is logged: since
 * all other input is constant, the request is at fault.
 */
export async function openEcho(log: { error(facts: object, message: string): void }): Promise<Echo> {
  const token = randomBytes(24).toString('base64url')
  const server = createServer((request, response) => {
    handle(request, response, token).catch((err: unknown) => {
      if (request.errored || response.destroyed) return
      log.error({ event: 'echo_request_failed', err }, 'echo request failed')
      if (response.headersSent) response.destroy()
      else json(response, 400, errorBody('invalid_value', 'Not a request of a wire that the echo speaks.'))
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

async function handle(request: IncomingMessage, response: ServerResponse, token: string): Promise<void> {
  const chunks: Buffer[] = []
  for await (const chunk of request) chunks.push(chunk as Buffer)
  if (!authorized(request.headers.authorization ?? '', token)) return json(response, 401, errorBody('invalid_api_key', 'Unknown key.'))
  const body = (parsedMembers(Buffer.concat(chunks).toString()) ?? {}) as Body
  const head = { id: randomBytes(12).toString('hex'), model: 'echo', created: Math.floor(Date.now() / 1000) }
  const wire = WIRES[request.url ?? '']
  const said = wire && body[wire.said]
  if (!wire || !(Array.isArray(said) || (wire.said === 'input' && typeof said === 'string')))
    return json(response, 400, errorBody('invalid_value', 'Not a request of a wire that the echo speaks.'))
  return body.stream ? stream(response, wire.events(body, head)) : json(response, 200, wire.json(body, head))
}

function authorized(header: string, token: string): boolean {
  const given = Buffer.from(header)
  const expected = Buffer.from(`Bearer ${token}`)
  return given.length === expected.length && timingSafeEqual(given, expected)
}

function errorBody(code: string, message: string): object {
  return { error: { message, type: 'invalid_request_error', code, param: null } }
}

function json(response: ServerResponse, status: number, body: object): void {
  response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
}

async function stream(response: ServerResponse, events: Iterable<{ event?: string; data: string; waitMs: number }>): Promise<void> {
  const closed = once(response, 'close').catch(() => {})
  for (const { event, data, waitMs } of events) {
    // The first event is generated only from a valid request: an error before it can still be answered with a 400.
    if (!response.headersSent) response.writeHead(200, { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' })
    if (waitMs > 0) await Promise.race([new Promise((resolve) => setTimeout(resolve, waitMs)), closed])
    if (response.destroyed) return
    const writable = response.write(`${event === undefined ? '' : `event: ${event}\n`}data: ${data}\n\n`)
    if (!writable) await Promise.race([once(response, 'drain'), closed])
  }
  response.end()
}
