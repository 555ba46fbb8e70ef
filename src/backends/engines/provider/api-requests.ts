/**
 * Requests to the API of a provider: JSON answers of a bounded size, or a body that is streamed away. No redirect is followed, so the key
 * goes nowhere else.
 */
import { Readable } from 'node:stream'
import { errors, Pool } from 'undici'
import { readAtMost } from '../../../http/bounded-body.ts'
import { traced } from '../../../telemetry/tracing.ts'
import type { Reach } from './settings.ts'

/** A body of known length that can be sent more than once. */
export type Body = { contentType: string; bytes: number; stream(): AsyncIterable<Uint8Array> }

export type Call = {
  method: 'GET' | 'POST' | 'DELETE'
  /** Below the address of the API. */
  path: string
  signal: AbortSignal
  body?: Body
  headers?: Record<string, string>
  /** Until the answer begins, when that is less than the settings have. */
  firstByteMs?: number
  /** How much of a JSON answer is read. */
  maxBytes?: number
  /** Takes the body of a 2xx; `body` of the answer is then null. Whatever it throws ends the call. */
  save?: (body: AsyncIterable<Uint8Array>) => Promise<void>
}

export type Answer =
  /** `body` is the parsed JSON; undefined when it is no JSON. `retryAfterMs`: its `Retry-After`, null without one. */
  | {
      outcome: 'answered'
      status: number
      headers: Record<string, string | string[] | undefined>
      retryAfterMs: number | null
      body: unknown
    }
  | { outcome: 'failed'; reason: 'network' | 'timeout' | 'too_large'; cause: unknown }

export type Api = {
  /** Sends a request. Rejects only with the reason of an aborted signal. */
  send(call: Call): Promise<Answer>
  /** Ends the connections after the requests in flight. Twice is harmless. */
  close(): Promise<void>
}

/** A body above its limit. */
export class TooLarge extends Error {}

const JSON_BYTES = 1024 * 1024

/** A body of JSON. */
export function jsonBody(value: unknown): Body {
  const bytes = Buffer.from(JSON.stringify(value))
  return {
    contentType: 'application/json',
    bytes: bytes.length,
    async *stream() {
      yield bytes
    },
  }
}

/** Opens the connections to the API. `clock`: epoch milliseconds, for a `Retry-After` that is a date. */
export function openApi({ base, headers, timeouts, key }: Reach, clock: () => number): Api {
  const pool = new Pool(base.origin, {
    allowH2: false,
    pipelining: 1,
    keepAliveTimeout: 30_000,
    connect: { timeout: timeouts.connectMs, rejectUnauthorized: true },
  })

  async function exchange({ method, path, signal, body, headers: more, firstByteMs, maxBytes = JSON_BYTES, save }: Call): Promise<Answer> {
    const bearer = key()
    const answer = await pool.request({
      method,
      path: base.pathname.replace(/\/$/, '') + path,
      headers: {
        ...(bearer === null ? {} : { authorization: `Bearer ${bearer}` }),
        'user-agent': 'tollgate',
        ...headers,
        ...more,
        'accept-encoding': 'identity',
        ...(body ? { 'content-type': body.contentType, 'content-length': String(body.bytes) } : {}),
      },
      body: body ? Readable.from(body.stream(), { objectMode: false }) : null,
      signal,
      headersTimeout: Math.min(firstByteMs ?? Infinity, timeouts.firstByteMs),
      bodyTimeout: timeouts.idleMs,
    })
    answer.body.on('error', () => {})
    const { statusCode: status, headers: received } = answer
    const head = { outcome: 'answered', status, headers: received, retryAfterMs: retryAfterMs(received['retry-after'], clock()) } as const
    if (!save || status < 200 || status >= 300) {
      const whole = await readAtMost(answer.body, maxBytes)
      if (whole === null) throw new TooLarge(`the answer is larger than ${maxBytes} bytes`)
      return { ...head, body: parsed(withoutKey(whole.toString(), bearer)) }
    }
    await save(answer.body)
    return { ...head, body: null }
  }

  return {
    async send(call) {
      call.signal.throwIfAborted()
      try {
        return await traced(
          call.method,
          { kind: 'client', within: true, attributes: { 'http.request.method': call.method, 'server.address': base.hostname } },
          async (span) => {
            const answer = await exchange(call)
            if (answer.outcome === 'answered') span.set({ 'http.response.status_code': answer.status })
            return answer
          },
        )
      } catch (cause) {
        call.signal.throwIfAborted()
        return { outcome: 'failed', reason: reasonOf(cause), cause }
      }
    },
    close: () => (pool.closed ? Promise.resolve() : pool.close()),
  }
}

/** Errors of a provider are logged, and some quote the request. */
const withoutKey = (text: string, key: string | null): string => (key === null ? text : text.replaceAll(key, '[key]'))

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** `Retry-After` in milliseconds (RFC 9110, 10.2.3): seconds, or a date; null when there is none that makes sense. */
function retryAfterMs(value: string | string[] | undefined, now: number): number | null {
  if (typeof value !== 'string') return null
  const ms = /^\d{1,7}$/.test(value) ? Number(value) * 1000 : Date.parse(value) - now
  return Number.isFinite(ms) && ms >= 0 ? ms : null
}

const LATE = [errors.ConnectTimeoutError, errors.HeadersTimeoutError, errors.BodyTimeoutError]

function reasonOf(cause: unknown): 'network' | 'timeout' | 'too_large' {
  if (cause instanceof TooLarge) return 'too_large'
  return LATE.some((kind) => cause instanceof kind) ? 'timeout' : 'network'
}
