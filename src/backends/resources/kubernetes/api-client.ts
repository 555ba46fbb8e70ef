/** Requests to the API server: a bounded number in flight, over kept connections. Whatever keeps an answer from being one is `Unavailable`. */
import { setTimeout as pause } from 'node:timers/promises'
import type { V1Status } from '@kubernetes/client-node'
import type { Dispatcher } from 'undici'
import { Refused, Unavailable } from '../../../domain/errors.ts'
import type { Connection, Credentials } from './credentials/credentials.ts'
import { openConcurrencyLimit } from './concurrency-limit.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** What the server says of a request that it did not do (`metav1.Status`). */
export type Failed = Pick<V1Status, 'reason' | 'message' | 'details' | 'code'>

/** An answer that the caller can act on: success, or 400, 403, 404, 409, 410, 422. */
export type Answer<T> = { status: number; body: T & Failed }

export type RequestOptions = {
  body?: unknown
  /** Defaults to JSON; a patch names its kind. */
  contentType?: string
  query?: Record<string, string>
}

export type Client = {
  /** Throws `Unavailable` when the server cannot be reached, is overloaded or refuses who we are. */
  request<T>(method: Method, path: string, options?: RequestOptions): Promise<Answer<T>>
  /** The body of a GET as it arrives; null with another answer than 200. `idleMs` without a byte end it. */
  stream(path: string, query: Record<string, string>, signal: AbortSignal, idleMs: number): Promise<AsyncIterable<Uint8Array> | Answer<object>>
  /** Requests by method and status code, with `<error>` where no answer came. */
  counts(): { method: Method; code: string; count: number }[]
  /** Tells from now on of each `request` how long it took, with the wait for its place. */
  observe(observer: (method: Method, seconds: number) => void): void
}

/** Requests by method and status code, of all clients that share it. */
export type Counts = Map<string, { method: Method; code: string; count: number }>

const MOST_IN_FLIGHT = 32
const TIMEOUT_MS = 30_000
const MOST_WAITS = 3
const LONGEST_WAIT_MS = 10_000
/** Of what is the asker's fault by its number: credentials that ran out, somebody who was faster, too many at once. */
const PASSING = [401, 409, 429]

export function openClient(credentials: Credentials, userAgent = 'tollgate', counted: Counts = new Map()): Client {
  const gate = openConcurrencyLimit(MOST_IN_FLIGHT)
  let observer: (method: Method, seconds: number) => void = () => {}

  function count(method: Method, code: string): void {
    const entry = counted.get(`${method} ${code}`) ?? { method, code, count: 0 }
    entry.count++
    counted.set(`${method} ${code}`, entry)
  }

  type Sent = { method: Method; path: string; query: Record<string, string>; body?: string; contentType?: string; signal?: AbortSignal; idleMs: number }

  /** Sends once, and once more with fresh credentials when they were refused. */
  async function send(sent: Sent, refused?: Connection): Promise<Dispatcher.ResponseData> {
    const { method, path, query, body, contentType, signal, idleMs } = sent
    const connection = await credentials.connection(refused)
    const { server, dispatcher, headers } = connection
    const base = server.pathname.replace(/\/$/, '')
    const search = new URLSearchParams(query).toString()
    const response = await dispatcher.request({
      origin: server.origin,
      path: `${base}${path}${search && `?${search}`}`,
      method,
      headers: { ...headers, accept: 'application/json', 'user-agent': userAgent, ...(body !== undefined && { 'content-type': contentType ?? 'application/json' }) },
      headersTimeout: TIMEOUT_MS,
      bodyTimeout: idleMs,
      // A DELETE may have a body here; undici would end the connection after one, not knowing what the server makes of it.
      reset: false,
      ...(body !== undefined && { body }),
      ...(signal && { signal }),
    })
    count(method, String(response.statusCode))
    if (response.statusCode !== 401 || refused) return response
    await response.body.dump()
    return send(sent, connection)
  }

  /** The server did not begin with what it answers 429, so that it may be asked again after the time that it names. */
  async function answered(sent: Sent): Promise<Dispatcher.ResponseData> {
    for (let waits = 0; ; waits++) {
      const response = await send(sent)
      const waitMs = Number(response.headers['retry-after']) * 1000
      if (response.statusCode !== 429 || waits >= MOST_WAITS || !(waitMs <= LONGEST_WAIT_MS)) return response
      await response.body.dump()
      await pause(waitMs, undefined, sent.signal && { signal: sent.signal })
    }
  }

  async function read(method: Method, path: string, { statusCode, body }: Dispatcher.ResponseData): Promise<Answer<never>> {
    const text = await body.text()
    const parsed = text.startsWith('{') ? JSON.parse(text) : { message: text.slice(0, 200) }
    if (statusCode === 401 || statusCode === 429 || statusCode >= 500) throw new Unavailable('resources', failure(method, path, { status: statusCode, body: parsed }))
    return { status: statusCode, body: parsed as never }
  }

  async function tried<T>(method: Method, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (error instanceof Unavailable) throw error
      count(method, '<error>')
      throw new Unavailable('resources', error)
    }
  }

  return {
    request(method, path, { body, contentType, query = {} } = {}) {
      const startMs = performance.now()
      return gate(() =>
        tried(method, async () => {
          const sent = { method, path, query, idleMs: TIMEOUT_MS, ...(body !== undefined && { body: JSON.stringify(body) }), ...(contentType !== undefined && { contentType }) }
          return read(method, path, await answered(sent))
        }),
      ).finally(() => observer(method, (performance.now() - startMs) / 1000))
    },
    stream: (path, query, signal, idleMs) =>
      tried('GET', async () => {
        const response = await answered({ method: 'GET', path, query, signal, idleMs })
        return response.statusCode === 200 ? response.body : read('GET', path, response)
      }),
    counts: () => [...counted.values()],
    observe(next) {
      observer = next
    },
  }
}

/** An answer that a caller has no use for, as an error whose sentence names the request and what the server said. */
export function failure(method: Method, path: string, { status, body }: Answer<object>): Error {
  const sentence = `${method} ${path} was answered ${status}: ${body.message ?? body.reason ?? 'without a reason'}`
  return status >= 400 && status < 500 && !PASSING.includes(status) ? new Refused(sentence) : new Error(sentence)
}

/** As `failure`, thrown as the backend says it. */
export function unexpected(method: Method, path: string, answer: Answer<object>): Unavailable {
  return new Unavailable('resources', failure(method, path, answer))
}

/** Nothing can be made in a namespace that is being deleted: a 403 that says nothing of rights. */
export function isNamespaceGoing({ status, body }: Answer<object>): boolean {
  return status === 403 && (body.details?.causes?.some(({ reason }) => reason === 'NamespaceTerminating') ?? false)
}
