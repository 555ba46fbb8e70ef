/** A model upstream that does what a test tells it: real HTTP on a free port of loopback. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'

export type Asked = { path: string; headers: IncomingHttpHeaders; text: string; body: Record<string, unknown> }

/** Answers one request. */
export type Script = (response: ServerResponse, asked: Asked) => void | Promise<void>

export type FakeUpstream = {
  /** Its baseUrl. */
  url: string
  /** Every request so far. */
  asked: Asked[]
  /** How many responses were cut off by the other side. */
  cutOff: number
  /** Resolves at the next response that is cut off. */
  nextCutOff(): Promise<void>
  /** What it does from now on. */
  does(script: Script): void
  close(): Promise<void>
}

export async function openUpstream(script: Script = (response) => respond(response, 500, {})): Promise<FakeUpstream> {
  let doing = script
  let waiting: (() => void)[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    response.on('error', () => {})
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer)
    } catch {
      // Who asked gave up before all of it was here.
      return
    }
    const text = Buffer.concat(chunks).toString('utf8')
    const closed = (): void => {
      if (response.writableFinished) return
      fake.cutOff++
      for (const wake of waiting) wake()
      waiting = []
    }
    if (response.closed) closed()
    else response.once('close', closed)
    const asked = { path: request.url ?? '', headers: request.headers, text, body: JSON.parse(text) as Record<string, unknown> }
    fake.asked.push(asked)
    await doing(response, asked)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const fake: FakeUpstream = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked: [],
    cutOff: 0,
    nextCutOff: () => new Promise((resolve) => waiting.push(resolve)),
    does(next) {
      doing = next
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

/** The head of a stream, and whatever bytes follow it. */
export function stream(response: ServerResponse, ...parts: (string | Buffer)[]): void {
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  for (const part of parts) response.write(part)
}

/** A whole stream. */
export const streams =
  (...parts: (string | Buffer)[]): Script =>
  (response) => {
    stream(response, ...parts)
    response.end()
  }
