/** A proxy in front of a test's API server, which lets through, refuses, or cuts off what the test tells it to. It speaks plain HTTP; the tokens are the server's own. */
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { pipeline } from 'node:stream'
import type { Test } from 'tap'
import { lines } from '../../../src/resources/kubernetes/watch.ts'
import type { Api } from './api.ts'

/** What becomes of a request: a status that is answered in the server's place, or `cut` without an answer. */
export type Fate = 'passes' | 'cut' | { status: number; reason: string; message?: string; details?: object; headers?: Record<string, string> }

export type Proxy = {
  kubeconfig: string
  /** Decides on each request; the test may replace it at any time. */
  fate: (method: string, path: string) => Fate
  /** Decides on each event of a watch, a line of JSON, whether it is told. */
  tells: (event: string) => boolean
  /** Requests that came, as `METHOD path?query`. */
  seen: string[]
  /** Cuts every connection that is open. */
  cut(): void
}

export async function openProxy(t: Test, { server, ca, token }: Api): Promise<Proxy> {
  const { port } = new URL(server)
  const http = createServer((asked, answer) => handle(asked, answer))
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

  async function* chosen(events: IncomingMessage): AsyncGenerator<string> {
    for await (const event of lines(events)) if (proxy.tells(event)) yield `${event}\n`
  }

  function handle(asked: IncomingMessage, answer: ServerResponse): void {
    const { method = 'GET', url = '/' } = asked
    proxy.seen.push(`${method} ${url}`)
    const fate = proxy.fate(method, url)
    if (fate === 'cut') return void asked.socket.destroy()
    if (fate !== 'passes') {
      const { status, reason, message = reason, details, headers = {} } = fate
      answer.writeHead(status, { 'content-type': 'application/json', ...headers })
      return void answer.end(JSON.stringify({ kind: 'Status', status: 'Failure', reason, message, details, code: status }))
    }
    const onward = request({ host: '127.0.0.1', port, path: url, method, headers: { ...asked.headers, host: `127.0.0.1:${port}` }, ca }, (from) => {
      answer.writeHead(from.statusCode ?? 502, from.headers)
      // A watch sends its headers long before its first event.
      answer.flushHeaders()
      const told = url.includes('watch=true') ? chosen(from) : from
      pipeline(told, answer, () => {})
    })
    onward.on('error', () => answer.destroy())
    answer.on('close', () => onward.destroy())
    asked.pipe(onward)
  }
  return proxy
}
