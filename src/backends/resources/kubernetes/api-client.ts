/**
 * HTTP client of the Kubernetes API server: concurrency limit, keep-alive, retry of 401 with fresh credentials and of 429 after
 * Retry-After; failures as `Unavailable`.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { V1Status } from '@kubernetes/client-node'
import type { Dispatcher } from 'undici'
import { Refused, Unavailable } from '../../../domain/errors.ts'
import { readAtMost } from '../../../http/bounded-body.ts'
import type { Connection, Credentials } from './credentials/credentials.ts'
import { openConcurrencyLimit } from './concurrency-limit.ts'

export type Method = 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'

/** Body of a response to a failed request (`metav1.Status`). */
export type FailureBody = Pick<V1Status, 'reason' | 'message' | 'details' | 'code'>

/** A response that the caller handles: success, or 400, 403, 404, 409, 410, 413, 422. */
export type ApiResponse<T> = { status: number; body: T & FailureBody }

export type RequestOptions = {
  body?: unknown
  /** Defaults to JSON; required for a patch. */
  contentType?: string
  query?: Record<string, string>
  /** A longer answer is not read to its end: its status becomes 413. */
  maxBytes?: number
}

export type Client = {
  /** Throws `Unavailable` when the server cannot be reached, is overloaded or does not accept the credentials. */
  request<T>(method: Method, path: string, options?: RequestOptions): Promise<ApiResponse<T>>
  /** Streams the body of a GET; resolves to the response if its status is not 200. The stream fails after `idleMs` without a byte. */
  stream(
    path: string,
    query: Record<string, string>,
    signal: AbortSignal,
    idleMs: number,
  ): Promise<AsyncIterable<Uint8Array> | ApiResponse<object>>
  /** Requests by method and status code, `<error>` where there was no response. */
  counts(): { method: Method; code: string; count: number }[]
  /** Calls `observer` after each `request` with its duration, which includes the wait for the concurrency limit. */
  observe(observer: (method: Method, seconds: number) => void): void
}

/** Requests by method and status code, summed over all clients that share the map. */
export type Counts = Map<string, { method: Method; code: string; count: number }>

const MAX_IN_FLIGHT = 32
const TIMEOUT_MS = 30_000
const MAX_RETRIES = 3
const MAX_RETRY_AFTER_MS = 10_000
/** Status codes of the 4xx range that a retry can cure: expired credentials, a conflict, a rate limit. */
const RETRIABLE = [401, 409, 429]

export function openClient(credentials: Credentials, userAgent = 'tollgate', counted: Counts = new Map()): Client {
  const limit = openConcurrencyLimit(MAX_IN_FLIGHT)
  let observer: (method: Method, seconds: number) => void = () => {}

  function count(method: Method, code: string): void {
    const entry = counted.get(`${method} ${code}`) ?? { method, code, count: 0 }
    entry.count++
    counted.set(`${method} ${code}`, entry)
  }

  type ApiRequest = {
    method: Method
    path: string
    query: Record<string, string>
    body?: string
    contentType?: string
    signal?: AbortSignal
    idleMs: number
  }

  /** Sends the request, and once more with fresh credentials after a 401. */
  async function send(request: ApiRequest, refused?: Connection): Promise<Dispatcher.ResponseData> {
    const { method, path, query, body, contentType, signal, idleMs } = request
    const connection = await credentials.connection(refused)
    const { server, dispatcher, headers } = connection
    const base = server.pathname.replace(/\/$/, '')
    const search = new URLSearchParams(query).toString()
    const response = await dispatcher.request({
      origin: server.origin,
      path: `${base}${path}${search && `?${search}`}`,
      method,
      headers: {
        ...headers,
        accept: 'application/json',
        'user-agent': userAgent,
        ...(body !== undefined && { 'content-type': contentType ?? 'application/json' }),
      },
      headersTimeout: TIMEOUT_MS,
      bodyTimeout: idleMs,
      // undici would close the connection after a DELETE with a body, which the API server accepts.
      reset: false,
      ...(body !== undefined && { body }),
      ...(signal && { signal }),
    })
    count(method, String(response.statusCode))
    if (response.statusCode !== 401 || refused) return response
    await response.body.dump()
    return send(request, connection)
  }

  /** Retries a 429 after its Retry-After: the server has not processed such a request. */
  async function sendWithRetry(request: ApiRequest): Promise<Dispatcher.ResponseData> {
    for (let retries = 0; ; retries++) {
      const response = await send(request)
      const waitMs = Number(response.headers['retry-after']) * 1000
      if (response.statusCode !== 429 || retries >= MAX_RETRIES || !(waitMs <= MAX_RETRY_AFTER_MS)) return response
      await response.body.dump()
      await pause(waitMs, undefined, request.signal && { signal: request.signal })
    }
  }

  async function read(
    method: Method,
    path: string,
    { statusCode, body }: Dispatcher.ResponseData,
    maxBytes = Infinity,
  ): Promise<ApiResponse<never>> {
    const text = (await readAtMost(body, maxBytes))?.toString()
    if (text === undefined) return { status: 413, body: { message: `more than ${maxBytes} bytes` } as never }
    const parsed = text.startsWith('{') ? JSON.parse(text) : { message: text.slice(0, 200) }
    if (statusCode === 401 || statusCode === 429 || statusCode >= 500)
      throw new Unavailable('resources', failure(method, path, { status: statusCode, body: parsed }))
    return { status: statusCode, body: parsed as never }
  }

  async function counting<T>(method: Method, work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      if (error instanceof Unavailable) throw error
      count(method, '<error>')
      throw new Unavailable('resources', error)
    }
  }

  return {
    request(method, path, { body, contentType, query = {}, maxBytes } = {}) {
      const startMs = performance.now()
      return limit(() =>
        counting(method, async () => {
          const request = {
            method,
            path,
            query,
            idleMs: TIMEOUT_MS,
            ...(body !== undefined && { body: JSON.stringify(body) }),
            ...(contentType !== undefined && { contentType }),
          }
          return read(method, path, await sendWithRetry(request), maxBytes)
        }),
      ).finally(() => observer(method, (performance.now() - startMs) / 1000))
    },
    stream: (path, query, signal, idleMs) =>
      counting('GET', async () => {
        const response = await sendWithRetry({ method: 'GET', path, query, signal, idleMs })
        return response.statusCode === 200 ? response.body : read('GET', path, response)
      }),
    counts: () => [...counted.values()],
    observe(next) {
      observer = next
    },
  }
}

/** A failed response as an error with the method, path, status and message; `Refused` if a retry would not help. */
export function failure(method: Method, path: string, { status, body }: ApiResponse<object>): Error {
  const sentence = `${method} ${path} returned ${status}: ${body.message ?? body.reason ?? 'no reason given'}`
  return status >= 400 && status < 500 && !RETRIABLE.includes(status) ? new Refused(sentence) : new Error(sentence)
}

/** `failure` wrapped in `Unavailable`, for a response that the caller does not handle. */
export function unexpected(method: Method, path: string, response: ApiResponse<object>): Unavailable {
  return new Unavailable('resources', failure(method, path, response))
}

/** Whether a creation failed because the namespace is being deleted: a 403 that is not about permissions. */
export function isNamespaceTerminating({ status, body }: ApiResponse<object>): boolean {
  return status === 403 && (body.details?.causes?.some(({ reason }) => reason === 'NamespaceTerminating') ?? false)
}
