/** An HTTP service behind a pass-through route: records what arrives, over TCP or TLS, and speaks WebSocket. Real servers on port 0. */
import { createServer, type IncomingMessage, type RequestListener } from 'node:http'
import { createServer as createTlsServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'
import { WebSocketServer, type WebSocket } from 'ws'

export type Service = {
  /** Origin, such as http://127.0.0.1:4711. */
  url: string
  /** Requests and handshakes, in order of arrival. */
  seen: { method: string; url: string; headers: IncomingMessage['headers'] }[]
  close(): Promise<void>
}

type Options = {
  answer?: RequestListener
  /** PEM of its certificate and key: it speaks TLS. */
  tls?: { key: string; cert: string }
  /** Gets each WebSocket; without it handshakes are answered like requests. */
  socket?: (socket: WebSocket) => void
}

export async function openService(t: Test, { answer = echo, tls, socket }: Options = {}): Promise<Service> {
  const seen: Service['seen'] = []
  const record = ({ method = '', url = '', headers }: IncomingMessage) => seen.push({ method, url, headers })
  const listener: RequestListener = (request, response) => {
    record(request)
    answer(request, response)
  }
  const server = tls ? createTlsServer(tls, listener) : createServer(listener)
  const sockets = socket ? new WebSocketServer({ noServer: true }) : null
  if (sockets && socket) {
    server.on('upgrade', (request, connection, head) => {
      record(request)
      sockets.handleUpgrade(request, connection, head, socket)
    })
  }
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const close = async () => {
    for (const client of sockets?.clients ?? []) client.terminate()
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  t.teardown(close)
  return { url: `${tls ? 'https' : 'http'}://127.0.0.1:${(server.address() as AddressInfo).port}`, seen, close }
}

/** Answers with the bytes that it got. */
function echo(request: IncomingMessage, response: Parameters<RequestListener>[1]): void {
  response.setHeader('content-type', request.headers['content-type'] ?? 'text/plain')
  request.pipe(response)
}
