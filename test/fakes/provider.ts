/** Base of the fake providers: real HTTP on a free loopback port, recorded requests, scripted answers before the default ones. */
import { once } from 'node:events'
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import type { Test } from 'tap'

export type Received = {
  method: string
  /** Without the query. */
  path: string
  headers: IncomingHttpHeaders
  body: Buffer
}

export type Respond = (response: ServerResponse, request: Received) => void | Promise<void>

export type FakeProvider = {
  /** `http://127.0.0.1:port`. */
  origin: string
  received: Received[]
  /** The requests of a route, such as `POST /v1/videos`; `*` matches one segment of the path. */
  to(route: string): Received[]
  /** Queues answers to the next requests of a route, in order, instead of the default ones. */
  next(route: string, ...responses: Respond[]): void
  /** Resolves when so many requests of a route have arrived. */
  arrived(route: string, count?: number): Promise<void>
}

/** Opens a fake with the default answers `usual`; closed at the end of the test. */
export async function openProvider(t: Test, usual: Respond): Promise<FakeProvider> {
  const queued = new Map<string, Respond[]>()
  let waiting: { route: string; count: number; resolve: () => void }[] = []
  const server = createServer(async (request, response) => {
    response.on('error', () => {})
    const chunks: Buffer[] = []
    try {
      for await (const chunk of request) chunks.push(chunk as Buffer)
    } catch {
      return
    }
    const path = new URL(request.url ?? '/', 'http://fake').pathname
    const received = { method: request.method ?? '', path, headers: request.headers, body: Buffer.concat(chunks) }
    fake.received.push(received)
    waiting = waiting.filter(({ route, count, resolve }) => fake.to(route).length < count || resolve())
    const route = [...queued.keys()].find((candidate) => isOf(candidate, received) && (queued.get(candidate)?.length ?? 0) > 0)
    await (route === undefined ? usual : (queued.get(route)?.shift() ?? usual))(response, received)
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  t.teardown(async () => {
    server.close()
    server.closeAllConnections()
    await once(server, 'close')
  })
  const fake: FakeProvider = {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    received: [],
    to: (route) => fake.received.filter((received) => isOf(route, received)),
    next: (route, ...responses) => void queued.set(route, [...(queued.get(route) ?? []), ...responses]),
    arrived(route, count = 1) {
      const { promise, resolve } = Promise.withResolvers<void>()
      if (fake.to(route).length >= count) resolve()
      else waiting.push({ route, count, resolve })
      return promise
    },
  }
  return fake
}

function isOf(route: string, { method, path }: Received): boolean {
  const [verb, wanted = ''] = route.split(' ')
  const [steps, given] = [wanted.split('/'), path.split('/')]
  return verb === method && steps.length === given.length && steps.every((step, i) => step === '*' || step === given[i])
}

export function json(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))
}

export const answers =
  (status: number, body: unknown = {}, headers: Record<string, string> = {}): Respond =>
  (response) =>
    json(response, status, body, headers)

/** Sends bytes with a content type, which may be wrong. */
export const sends =
  (bytes: Uint8Array, contentType: string): Respond =>
  (response) =>
    void response.writeHead(200, { 'content-type': contentType, 'content-length': bytes.length }).end(bytes)

/** Never answers. */
export const hangs: Respond = () => {}

/** Cuts the connection. */
export const cuts: Respond = (response) => void response.destroy()

export const redirects =
  (location: string): Respond =>
  (response) =>
    void response.writeHead(302, { location }).end()

/** A multipart body, read by Node's own parser. */
export async function formOf({ headers, body }: Received): Promise<FormData> {
  return new Response(new Uint8Array(body), { headers: { 'content-type': headers['content-type'] ?? '' } }).formData()
}

export async function fileOf(form: FormData, name: string): Promise<{ name: string; type: string; bytes: Buffer } | null> {
  const file = form.get(name)
  return file === null || typeof file === 'string' ? null : { name: file.name, type: file.type, bytes: Buffer.from(await file.arrayBuffer()) }
}
