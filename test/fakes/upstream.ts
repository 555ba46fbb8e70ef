/** Fake upstream that runs the script of a test: real HTTP on a free port of loopback. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type ReceivedRequest = { path: string; headers: IncomingHttpHeaders; text: string; body: Record<string, unknown> }

/** Answers one request. */
export type Script = (response: ServerResponse, request: ReceivedRequest) => void | Promise<void>

export type FakeUpstream = {
  /** Its baseUrl. */
  url: string
  /** Every request so far. */
  requests: ReceivedRequest[]
  /** Number of responses that the client aborted. */
  aborts: number
  /** Resolves when the client aborts the next response. */
  nextAbort(): Promise<void>
  /** Sets the script for all further requests. */
  respondWith(script: Script): void
  close(): Promise<void>
}

export async function openUpstream(script: Script = (response) => respond(response, 500, {})): Promise<FakeUpstream> {
  let current = script
  let waiting: (() => void)[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    response.on('error', () => {})
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer)
    } catch {
      // The client aborted before its body was complete.
      return
    }
    const text = Buffer.concat(chunks).toString('utf8')
    const closed = (): void => {
      if (response.writableFinished) return
      fake.aborts++
      for (const wake of waiting) wake()
      waiting = []
    }
    if (response.closed) closed()
    else response.once('close', closed)
    const received = { path: request.url ?? '', headers: request.headers, text, body: JSON.parse(text) as Record<string, unknown> }
    fake.requests.push(received)
    await current(response, received)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const fake: FakeUpstream = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    requests: [],
    aborts: 0,
    nextAbort: () => new Promise((resolve) => waiting.push(resolve)),
    respondWith(next) {
      current = next
    },
    async close() {
      server.close()
      server.closeAllConnections()
    },
  }
  return fake
}

export function respond(response: ServerResponse, status: number, body: object, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

/** Sends the headers of a stream, then the parts. */
export function stream(response: ServerResponse, ...parts: (string | Buffer)[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const part of parts) response.write(part)
}

/** Sends a whole stream. */
export const streams =
  (...parts: (string | Buffer)[]): Script =>
  (response) => {
    stream(response, ...parts)
    response.end()
  }
