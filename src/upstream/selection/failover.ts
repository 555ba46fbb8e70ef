/** Asks upstreams, one after the other, until one answers: retry with back-off at each, then the next. */
import { Failure } from '../../domain/errors.ts'
import { attempt, type Opened, type Trouble } from './attempt.ts'
import type { Running } from './load-balancing.ts'
import type { Call, WireName } from '../wires/wire.ts'

export type UpstreamLog = {
  info(facts: object, message: string): void
  warn(facts: object, message: string): void
  error(facts: object, message: string): void
}

/** How an attempt went: `refused` is the request's fault, `abandoned` the client's leaving. */
export type Outcome = 'answered' | 'refused' | 'failed' | 'abandoned'

/** Something to count. */
export type UpstreamEvent =
  | { event: 'attempt'; upstream: string; wire: WireName; outcome: Outcome; durationMs: number }
  | { event: 'retry'; upstream: string; wire: WireName }

export type Surroundings = {
  log: UpstreamLog
  /** Epoch milliseconds. */
  now: () => number
  /** In [0, 1). */
  random: () => number
  /** Before the second attempt; doubled for each further one. */
  backOffMs: number
  tell: (event: UpstreamEvent) => void
}

/** A wait that an upstream asks for is granted on the spot up to here; beyond it, the next upstream is asked. */
const LONGEST_PAUSE_MS = 2000
const RETRY_AFTER_SECONDS = { least: 2, most: 30 }
/** What another attempt at the same upstream cannot mend: our key, its balance, our path or model. */
const HOPELESS = [401, 402, 403, 404, 405, 410]

/**
 * Resolves with the first answer. Rejects with `server_overloaded` when there is none, with the failure that the request is at fault for,
 * or with the signal's reason.
 */
export async function ask(candidates: Running[], call: Call, signal: AbortSignal, around: Surroundings): Promise<Opened> {
  const errors: Error[] = []
  for (const one of candidates) {
    const result = await exhaust(one, call, signal, around)
    if (!(result instanceof Error)) return result
    errors.push(result)
  }
  const waits = candidates.map(({ breaker }) => Math.ceil(breaker.waitMs(around.now()) / 1000))
  const retryAfterSeconds = Math.min(
    RETRY_AFTER_SECONDS.most,
    Math.max(RETRY_AFTER_SECONDS.least, waits.length > 0 ? Math.min(...waits) : 0),
  )
  throw new Failure('server_overloaded', { retryAfterSeconds, cause: new AggregateError(errors, 'no upstream answered') })
}

/** All attempts at one upstream. Returns what stopped them when the next upstream is to be asked. */
async function exhaust(one: Running, call: Call, signal: AbortSignal, around: Surroundings): Promise<Opened | Error> {
  const { name, retry } = one.declared
  for (let n = 1; ; n++) {
    if (!one.breaker.admit(around.now())) return new Error(`${name} is left alone for now`)
    try {
      return await once(one, call, signal, around)
    } catch (error) {
      if (signal.aborted || error instanceof Failure) throw error
      const trouble = error as Trouble
      const pauseMs = Math.max(trouble.retryAfterMs ?? 0, around.backOffMs * 2 ** (n - 1) * (0.5 + around.random() / 2))
      if (n >= retry.attempts || HOPELESS.includes(trouble.status) || pauseMs > LONGEST_PAUSE_MS) return trouble
      around.tell({ event: 'retry', upstream: name, wire: call.wire })
      await rest(pauseMs, signal)
      if (signal.aborted) throw new Failure('server_overloaded', { cause: trouble })
    }
  }
}

/** One attempt, told to the breaker, the log and the counters. */
async function once(
  { declared, pool, path, headers, target, breaker }: Running,
  call: Call,
  signal: AbortSignal,
  around: Surroundings,
): Promise<Opened> {
  const { name, timeouts } = declared
  const begunAt = around.now()
  const tell = (outcome: Outcome) =>
    around.tell({ event: 'attempt', upstream: name, wire: call.wire, outcome, durationMs: around.now() - begunAt })
  // An answer in JSON comes whole: its first byte takes as long as all of it.
  const firstByteMs = call.stream ? timeouts.firstByteMs : Math.max(timeouts.firstByteMs, timeouts.idleMs)
  const outgoing = {
    path: path(call.wire),
    headers: { ...headers, accept: call.stream ? 'text/event-stream' : 'application/json' },
    body: call.body(target),
  }
  try {
    const opened = await attempt(pool, outgoing, { firstByteMs, idleMs: timeouts.idleMs }, call, signal)
    breaker.succeeded()
    tell('answered')
    return opened
  } catch (error) {
    if (signal.aborted) {
      breaker.left()
      tell('abandoned')
    } else if (error instanceof Failure) {
      breaker.succeeded()
      tell('refused')
    } else {
      breaker.failed(around.now())
      tell('failed')
      around.log.warn({ upstream: name, wire: call.wire, err: error, breaker: breaker.state(around.now()) }, 'an upstream did not answer')
    }
    throw error
  }
}

/** Waits, less when the client leaves. */
function rest(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  const timer = setTimeout(resolve, ms)
  const leave = () => resolve()
  signal.addEventListener('abort', leave)
  return promise.finally(() => {
    clearTimeout(timer)
    signal.removeEventListener('abort', leave)
  })
}
