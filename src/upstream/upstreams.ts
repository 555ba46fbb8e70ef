/**
 * SERVICE: the only caller of model servers. Reads the UPSTREAMS file, polls it for changes, and sends each call to the upstreams with load
 * balancing, retries and failover (`docs/upstreams.md`).
 */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { watchFile } from '../concurrency/watched-file.ts'
import { unreadable } from '../domain/settings-file.ts'
import type { AnswerSource } from './http/answer.ts'
import type { Upstream } from './http/upstream.ts'
import type { Breaker } from './selection/circuit-breaker.ts'
import { candidatesFor, wiresFor } from './selection/load-balancing.ts'
import { FailoverCall, type CallSink, type UpstreamEvent, type UpstreamLog } from './selection/retry-and-failover.ts'
import { openActiveUpstreams } from './active-upstreams.ts'
import { parseUpstreams } from './upstreams-file.ts'
import type { UpstreamCall, WireName } from './wires/wire.ts'

export type Upstreams = {
  /** The wires over which requests of a client's wire reach the upstreams, the preferred one first. */
  wiresFor(wire: WireName): readonly WireName[]
  /**
   * Sends a call, over any of its wires, to the upstreams until one answers: by priority, within a priority by weight, each as often as its
   * `retry` allows. The sink gets `answered` and then the answer, or `failed`: with `server_overloaded` when none answered, with a 4xx failure when
   * the request is at fault. After `abort` it is not called any more. `log` has the fields of the request.
   */
  send(call: UpstreamCall, sink: CallSink, log: UpstreamLog): AnswerSource
  /** What every upstream allows (`allow` of the UPSTREAMS file): any of them may get a request. */
  allowed(): ReadonlySet<string>
  /** The smallest context window that an upstream declares, in tokens, or null. */
  contextWindow(): number | null
  states(): { name: string; breaker: ReturnType<Breaker['state']> }[]
  /** Sets the one observer of attempts and retries, for metrics. */
  observe(observer: (event: UpstreamEvent) => void): void
  /** Reads the file again now. An invalid file is logged and changes nothing. */
  reload(): Promise<void>
  /** Ends all calls in flight. Closing twice is harmless. */
  close(): Promise<void>
}

export type UpstreamsOptions = {
  /** The UPSTREAMS file, or null for the built-in echo. */
  file: string | null
  /** Environment variables that `apiKeyEnv` may name. */
  env: (name: string) => string | undefined
  log: UpstreamLog
  /** Epoch milliseconds. */
  now?: () => number
  /** In [0, 1). */
  random?: () => number
  /** Before the second attempt; doubled for each further one. */
  backOffMs?: number
  /** How often the file and the key files that it names are read again. */
  pollMs?: number
}

const ECHO = '{"upstreams": [{"name": "echo", "baseUrl": "echo:", "wire": ["chat", "responses", "messages"]}]}'

/**
 * Reads the file and opens a connection pool for each upstream; starts the built-in echo if the file names it. Throws an
 * `SettingsFileError` when the file is invalid.
 */
export async function openUpstreams(options: UpstreamsOptions): Promise<Upstreams> {
  const { file, env, log, now = Date.now, random = Math.random, backOffMs = 100, pollMs = 1000 } = options
  const active = openActiveUpstreams(log)
  let observer: (event: UpstreamEvent) => void = () => {}
  let isClosed = false
  const context = { now, random, backOffMs, emit: (event: UpstreamEvent) => observer(event), isClosed: () => isClosed }

  let derived = derivedFrom(active.all())
  /** Computed once per change of the file, not per request. */
  const current = () => {
    const all = active.all()
    if (derived.all !== all) derived = derivedFrom(all)
    return derived
  }

  const keys = { env, readFile: (path: string) => readFileSync(resolve(dirname(file ?? '.'), path), 'utf8') }
  const read = async () =>
    parseUpstreams(file ?? 'echo', file === null ? ECHO : await readFile(file, 'utf8').catch(unreadable('UPSTREAMS', file)), keys)

  const load = async () => active.apply(await read())
  const watched =
    file === null
      ? null
      : await watchFile(
          load,
          (error) =>
            log.error({ event: 'upstreams_file_refused', err: error.message }, 'UPSTREAMS file refused, the last valid one stays in use'),
          pollMs,
        )
  if (watched === null) await load()

  return {
    wiresFor: (wire) => current().wires[wire],
    send(call, sink, log) {
      const sent = new FailoverCall(candidatesFor(call, active.all(), random), sink, context, log)
      sent.start()
      return sent
    },
    allowed: () => current().allowed,
    contextWindow() {
      const sizes = active.all().flatMap(({ settings }) => settings.contextWindow ?? [])
      return sizes.length > 0 ? Math.min(...sizes) : null
    },
    states: () => active.all().map(({ settings, breaker }) => ({ name: settings.name, breaker: breaker.state(now()) })),
    observe(next) {
      observer = next
    },
    reload: async () => watched?.reload(),
    async close() {
      isClosed = true
      await watched?.close()
      await active.close()
    },
  }
}

function derivedFrom(all: readonly Upstream[]) {
  const allowed = new Set(all[0]?.settings.allow.filter((entry) => all.every(({ settings }) => settings.allow.includes(entry))))
  const wires = { chat: wiresFor('chat', all), responses: wiresFor('responses', all), messages: wiresFor('messages', all) }
  return { all, allowed, wires }
}
