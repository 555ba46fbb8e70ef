/**
 * BACKEND: who makes the media. A routing table, the ENGINES file, maps each kind and operation to an engine and a price; engines are adapters, ours or those that
 * a plugin adds.
 */
import { readFile } from 'node:fs/promises'
import type { Amounts, GenerationRequest } from '../../domain/generations.ts'
import { TASK_ERRORS, type TaskErrorCode } from '../../domain/task.ts'
import { DEFAULT_ENGINES, readEngines, type EngineSetting, type EnginesSettings, type Route } from './engines-file.ts'
import { EMPTY, nextTable, offerOf } from './routing-table.ts'

/** What was made. `used` is what it took, in the units of the price list; it is charged up to what was held. */
export type Made = {
  outcome: 'made'
  body: Uint8Array | AsyncIterable<Uint8Array>
  contentType: string
  facts: { width: number | null; height: number | null; durationMs: number | null }
  used: Amounts
}

/** Why nothing was made. `message` is public and never names or quotes the provider; `cause` is only logged. */
export type NotMade = { outcome: 'failed'; code: Exclude<TaskErrorCode, 'canceled'>; retryable: boolean; message: string; cause?: unknown }

export type Control = {
  /** Aborted when the task was canceled, its lease was lost or the process stops. */
  signal: AbortSignal
  /** Hears whole percents from 0 to 99 that never go down. */
  progress: (percent: number) => void
}

export type Engine = {
  /** The kinds and operations that it makes now, each with the formats that it writes, the default first. */
  offers: Readonly<Record<string, { formats: readonly [string, ...string[]] }>>
  /** What a request will take at most. Pure. */
  quote(request: GenerationRequest): Amounts
  /** Makes it. `model` is the route's. Rejects only when `signal` is aborted, with its reason, and soon; everything else is an outcome. */
  run(request: GenerationRequest, control: Control & { model: string | null }): Promise<Made | NotMade>
  /** Lets go of everything, after the runs that are under way. Twice is harmless. */
  close(): Promise<void>
}

/** Opens an engine under the name that the file gives it, with the other members of its entry. Throws an Error whose message says what is wrong with them. */
export type OpenEngine = (name: string, options: Record<string, unknown>) => Promise<Engine>

/** A kind or operation that can be had now. */
export type Offer = { route: Route; formats: readonly [string, ...string[]]; quote(request: GenerationRequest): Amounts }

export type Engines = {
  /** Adds a type that engines of the file may have. Only before `ready`; throws when the type is there already. */
  add(type: string, open: OpenEngine): void
  /** Opens the engines of the file. Throws an Error that names the line of the one that cannot be. */
  ready(): Promise<void>
  /** How a kind or operation is made now, or null: `not_supported`. */
  offer(verb: string): Offer | null
  /** Makes what is asked for by the route of its verb, for at most the route's time. Rejects only with the reason of an aborted `signal`. */
  run(request: GenerationRequest, control: Control): Promise<Made | NotMade>
  /** Reads the file again. A bad one is refused, and everything stays as it was. It happens by itself when the file changes. */
  reload(): Promise<{ outcome: 'applied' } | { outcome: 'refused'; message: string }>
  close(): Promise<void>
}

export type EnginesConfig = {
  /** The ENGINES file; the built-in table when null. */
  file: string | null
  log: { info(facts: object, message: string): void; warn(facts: object, message: string): void }
  /** How often a change of the file is looked for. */
  watchMs?: number
}

/** A failure with its public sentence, to be returned from `run`. */
export function notMade(code: NotMade['code'], retryable: boolean, cause?: unknown): NotMade {
  return { outcome: 'failed', code, retryable, message: TASK_ERRORS[code], ...(cause === undefined ? {} : { cause }) }
}

/** Opens the backend on the file's routing table. Throws an Error with the line at fault when the file makes no sense. */
export async function openEngines({ file, log, watchMs = 5000 }: EnginesConfig): Promise<Engines> {
  const types = new Map<string, OpenEngine>([['preview', async (...entry) => (await import('./preview/preview.ts')).openPreview(...entry)]])
  let table = EMPTY
  let state: 'opened' | 'ready' | 'closed' = 'opened'
  let loading: Promise<unknown> = Promise.resolve()
  // What the file held when it was last looked at, good or bad; null when it could not be read.
  let seen: string | null = null
  let watch: NodeJS.Timeout | undefined
  await read()

  async function read(): Promise<EnginesSettings> {
    seen = null
    seen = file === null ? DEFAULT_ENGINES : await readFile(file, 'utf8')
    const found = readEngines(seen)
    if (found.outcome === 'refused') throw atLine(file, found.refusal.line, found.refusal.message)
    return found.settings
  }

  /** Puts the file's table in place of the present one. An engine whose entry is the same stays open. */
  async function load(): Promise<void> {
    const { next, gone } = await nextTable(table, await read(), (setting) => openOne(types, file, setting))
    table = next
    for (const { verb, engine } of next.routes.values()) {
      if (!offerOf(next, verb)) log.warn({ verb, engine }, 'the engine of this route does not make that at present: it is not supported')
    }
    await Promise.all(gone.map((engine) => engine.close()))
  }

  async function reload(): Promise<{ outcome: 'applied' } | { outcome: 'refused'; message: string }> {
    const loaded = loading.then(load)
    loading = loaded.catch(() => undefined)
    try {
      await loaded
      log.info({ file }, 'the ENGINES file was read')
      return { outcome: 'applied' }
    } catch (error) {
      const message = error instanceof Error ? error.message : String(error)
      log.warn({ file, err: error }, 'the ENGINES file is refused, the earlier one stays in force')
      return { outcome: 'refused', message }
    }
  }

  /** Compares what the file holds rather than its times: no change is missed, however the file is replaced. */
  async function look(path: string): Promise<void> {
    const held = await readFile(path, 'utf8').catch(() => null)
    if (state === 'ready' && held !== seen) await reload()
  }

  return {
    offer: (verb) => offerOf(table, verb),
    reload,
    add(type, open) {
      if (state !== 'opened') throw new Error(`engines of type ${type} are added too late: before the program is ready`)
      if (types.has(type)) throw new Error(`engines of type ${type} are there already`)
      types.set(type, open)
    },
    async ready() {
      if (state !== 'opened') return
      state = 'ready'
      await load()
      if (file !== null) watch = setInterval(() => void look(file), watchMs).unref()
    },
    async run(request, control) {
      const route = table.routes.get(request.verb)
      const engine = offerOf(table, request.verb) && route && table.engines.get(route.engine)?.engine
      if (!route || !engine) return notMade('not_supported', false)
      return runWithin(engine, request, route, control)
    },
    async close() {
      if (state === 'closed') return
      state = 'closed'
      clearInterval(watch)
      await loading
      await Promise.all([...table.engines.values()].map(({ engine }) => engine.close()))
    },
  }
}

function atLine(file: string | null, line: number, message: string): Error {
  return new Error(`ENGINES: ${file ?? 'built-in table'}, line ${line}: ${message}`)
}

async function openOne(types: Map<string, OpenEngine>, file: string | null, { name, type, options, line }: EngineSetting): Promise<Engine> {
  const open = types.get(type)
  if (!open) throw atLine(file, line, `engines of type ${type} are not available; there are: ${[...types.keys()].join(', ')}`)
  return open(name, options).catch((error: unknown) => {
    throw atLine(file, line, `engine ${name}: ${error instanceof Error ? error.message : 'cannot be opened'}`)
  })
}

/** A run for at most the route's time. Whatever an engine throws is an outcome, except what the caller's own signal caused. */
async function runWithin(engine: Engine, request: GenerationRequest, route: Route, { signal, progress }: Control): Promise<Made | NotMade> {
  signal.throwIfAborted()
  const timeout = AbortSignal.timeout(route.timeoutMs)
  let reached = -1
  const rising = (percent: number): void => {
    const next = Math.min(99, Math.floor(percent))
    if (next > reached) progress((reached = next))
  }
  try {
    return await engine.run(request, { model: route.model, signal: AbortSignal.any([signal, timeout]), progress: rising })
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    return timeout.aborted ? notMade('provider_timeout', true, cause) : notMade('internal', true, cause)
  }
}
