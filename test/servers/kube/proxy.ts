/** A fault-injecting proxy in front of a test's API server: it forwards, refuses, or cuts off requests and watch events. It speaks plain HTTP; the tokens are the server's. */
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pipeline } from 'node:stream'
import { buffer, text } from 'node:stream/consumers'
import type { Test } from 'tap'
import { lines } from '../../../src/backends/resources/kubernetes/watch-stream.ts'
import type { Api } from './api.ts'

/**
 * The fate of a request: a status that is answered instead of the server's, or `cut` without an answer. `unanswered`: the server executes it, and the answer is lost. `halved`: the server
 * executes it, and half of the answer arrives.
 */
export type Fate = 'passes' | 'cut' | 'unanswered' | 'halved' | { status: number; reason: string; message?: string; details?: object; headers?: Record<string, string> }

/** The fate of a watch event: forwarded or dropped, or the watch ends after that many bytes of it, by closing the connection or as if it were complete. */
export type Telling = boolean | { bytes: number; isBroken: boolean }

export type Proxy = {
  kubeconfig: string
  /** Decides on each request, whose body is '' where it has none; the test may replace it at any time. */
  fate: (method: string, path: string, body: string) => Fate | Promise<Fate>
  /** Decides on each event of a watch, a line of JSON without its end. */
  tells: (event: string) => Telling
  /** Received requests, as `METHOD path?query`. */
  seen: string[]
  /** Cuts every connection that is open. */
  cut(): void
}

export async function openProxy(t: Test, { server, ca, token }: Api): Promise<Proxy> {
  const { port } = new URL(server)
  const http = createServer((asked, answer) => void handle(asked, answer).catch(() => asked.socket.destroy()))
  http.listen(0, '127.0.0.1')
  await once(http, 'listening')
  t.teardown(async () => {
    http.closeAllConnections()
    await new Promise((resolve) => http.close(resolve))
  })
  const kubeconfig = join(t.testdir({}), 'kubeconfig')
  await writeFile(
    kubeconfig,
    JSON.stringify({
      clusters: [{ name: 'proxy', cluster: { server: `http://127.0.0.1:${(http.address() as AddressInfo).port}`, 'insecure-skip-tls-verify': true } }],
      users: [{ name: 'user', user: { token } }],
      contexts: [{ name: 'proxy', context: { cluster: 'proxy', user: 'user' } }],
      'current-context': 'proxy',
    }),
  )
  const proxy: Proxy = { kubeconfig, fate: () => 'passes', tells: () => true, seen: [], cut: () => http.closeAllConnections() }

  async function tell(events: IncomingMessage, answer: ServerResponse): Promise<void> {
    for await (const event of lines(events)) {
      const telling = proxy.tells(event)
      const line = Buffer.from(`${event}\n`)
      if (telling === true) answer.write(line)
      if (typeof telling === 'boolean') continue
      if (telling.isBroken) return breakOff(answer, line.subarray(0, telling.bytes))
      return void answer.end(line.subarray(0, telling.bytes))
    }
    answer.end()
  }

  async function pass({ method = 'GET', url = '/', headers }: IncomingMessage, body: string, answer: ServerResponse, fate: 'passes' | 'unanswered' | 'halved'): Promise<void> {
    const onward = request({ host: '127.0.0.1', port, path: url, method, headers: { ...headers, host: `127.0.0.1:${port}` }, ca })
    onward.on('error', () => answer.destroy())
    answer.on('close', () => onward.destroy())
    onward.end(body)
    const [from] = (await once(onward, 'response')) as [IncomingMessage]
    from.on('error', () => answer.destroy())
    if (fate === 'unanswered') return void answer.destroy()
    answer.writeHead(from.statusCode ?? 502, from.headers)
    // A watch sends its headers long before its first event.
    answer.flushHeaders()
    if (url.includes('watch=true')) return tell(from, answer)
    if (fate === 'passes') return void pipeline(from, answer, () => {})
    const whole = await buffer(from)
    breakOff(answer, whole.subarray(0, whole.length / 2))
  }

  async function handle(asked: IncomingMessage, answer: ServerResponse): Promise<void> {
    const { method = 'GET', url = '/' } = asked
    const body = await text(asked)
    proxy.seen.push(`${method} ${url}`)
    const fate = await proxy.fate(method, url, body)
    if (fate === 'cut') return void asked.socket.destroy()
    if (typeof fate === 'string') return pass(asked, body, answer, fate)
    const { status, reason, message = reason, details, headers = {} } = fate
    answer.writeHead(status, { 'content-type': 'application/json', ...headers })
    answer.end(JSON.stringify({ kind: 'Status', status: 'Failure', reason, message, details, code: status }))
  }
  return proxy
}

/** The connection ends once these bytes are on their way. */
function breakOff(answer: ServerResponse, last: Buffer): void {
  if (last.length === 0) answer.destroy()
  else answer.write(last, () => answer.destroy())
}
