/**
 * SERVICE: the only caller of the model API. Knows the upstreams of the UPSTREAMS file, chooses one for each call, tries again and falls
 * back until one answers, and leaves alone those that keep failing (`docs/upstreams.md`).
 */
import { readFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { ask, type UpstreamEvent, type UpstreamLog } from './selection/failover.ts'
import type { Opened } from './selection/attempt.ts'
import type { Breaker } from './selection/circuit-breaker.ts'
import { parseUpstreams, UpstreamsError, type Declared } from './selection/upstreams-file.ts'
import { inOrder, run, type Running } from './selection/load-balancing.ts'
import type { Call, WireName } from './wires/wire.ts'

export type UpstreamState = { name: string; wire: Declared['wire']; breaker: ReturnType<Breaker['state']> }

export type Upstreams = {
  /** Whether any upstream speaks the wire. */
  serves(wire: WireName): boolean
  /**
   * Puts a call to the upstreams until one answers: by priority, within one by weight, each as often as its `retry` says. Rejects with
   * `server_overloaded` when none did, with the failure that the request is at fault for, or with the signal's reason once it is aborted.
   */
  open(call: Call, signal: AbortSignal): Promise<Opened>
  /** The smallest context window that an upstream declares, in tokens, or null. */
  contextWindow(): number | null
  states(): UpstreamState[]
  /** Who is told what happens; for metrics. */
  observe(observer: (event: UpstreamEvent) => void): void
  /** Reads the file again now. A bad file is logged and changes nothing. */
  reload(): Promise<void>
  /** Ends everything in flight. Closing twice is harmless. */
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
  /** How often the file and the keys that it names are looked at. */
  pollMs?: number
}

const ECHO = '{"upstreams": [{"name": "echo", "baseUrl": "echo:", "wire": "both"}]}'

/**
 * Reads the file and opens a pool for each upstream; the built-in echo is started if it is named. Throws an `UpstreamsError` when the file
 * is not right.
 */
export async function openUpstreams(options: UpstreamsOptions): Promise<Upstreams> {
  const { file, env, log, now = Date.now, random = Math.random, backOffMs = 100, pollMs = 1000 } = options
  const set = openSet(log)
  let complaint: string | null = null
  let observer: (event: UpstreamEvent) => void = () => {}
  let turn: Promise<void> = Promise.resolve()
  const around = { log, now, random, backOffMs, tell: (event: UpstreamEvent) => observer(event) }

  const read = async () =>
    parseUpstreams(file ?? 'echo', file === null ? ECHO : await textOf(file), { env, readFile: (path) => readFileSync(path, 'utf8') })

  async function readAgain(): Promise<void> {
    try {
      await set.apply(await read())
      complaint = null
    } catch (error) {
      const { message } = error as Error
      if (message !== complaint) log.error({ err: message }, 'the UPSTREAMS file was not taken over; what was read before stays in use')
      complaint = message
    }
  }
  const reload = () => (turn = turn.then(readAgain))

  await set.apply(await read())
  const poll = file === null ? null : setInterval(() => void reload(), pollMs)

  return {
    serves: (wire) => inOrder(set.all(), wire, random).length > 0,
    open: (call, signal) => ask(inOrder(set.all(), call.wire, random), call, signal, around),
    contextWindow() {
      const sizes = set.all().flatMap(({ declared }) => declared.contextWindow ?? [])
      return sizes.length > 0 ? Math.min(...sizes) : null
    },
    states: () => set.all().map(({ declared, breaker }) => ({ name: declared.name, wire: declared.wire, breaker: breaker.state(now()) })),
    observe(next) {
      observer = next
    },
    reload,
    async close() {
      if (poll) clearInterval(poll)
      await turn
      await set.close()
    },
  }
}

async function textOf(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8')
  } catch (error) {
    throw new UpstreamsError(file, null, `cannot be read (${(error as NodeJS.ErrnoException).code ?? 'error'})`)
  }
}

type UpstreamSet = { all(): Running[]; apply(list: Declared[]): Promise<void>; close(): Promise<void> }

/** Those in use. Ones that did not change keep their connections and breakers; those that went end what they have in flight. */
function openSet(log: UpstreamLog): UpstreamSet {
  let running = new Map<string, Running>()
  let echo: Promise<{ url: string; token: string; close(): Promise<void> }> | null = null
  const going = new Set<Running>()

  async function start(declared: Declared): Promise<Running> {
    if (declared.baseUrl !== 'echo:') return run(declared, declared.baseUrl, declared.apiKey)
    echo ??= import('./echo/echo-server.ts').then(({ openEcho }) => openEcho(log))
    const { url, token } = await echo
    return run(declared, url, token)
  }

  function leave(one: Running): void {
    going.add(one)
    void one.pool
      .close()
      .catch(() => {})
      .finally(() => going.delete(one))
  }

  return {
    all: () => [...running.values()],
    async apply(list) {
      const next = new Map<string, Running>()
      for (const declared of list) {
        const before = running.get(declared.name)
        next.set(declared.name, before && JSON.stringify(before.declared) === JSON.stringify(declared) ? before : await start(declared))
      }
      const left = [...running.values()].filter((one) => next.get(one.declared.name) !== one)
      const came = [...next.values()].some((one) => running.get(one.declared.name) !== one)
      running = next
      for (const one of left) leave(one)
      if (came || left.length > 0)
        log.info({ upstreams: list.map(({ name, wire, priority }) => ({ name, wire, priority })) }, 'upstreams are in use')
    },
    async close() {
      const last = [...running.values(), ...going]
      running = new Map()
      await Promise.all(last.map(({ pool }) => pool.destroy().catch(() => {})))
      const stopping = echo
      echo = null
      if (stopping) await (await stopping).close()
    },
  }
}
