/**
 * BACKEND: engines that make media. A routing table, the ENGINES file, maps each kind and operation to an engine and a price; engines are
 * adapters, ours or those of plugins.
 */
import { watchFile, type WatchedFile } from '../../concurrency/watched-file.ts'
import type { Amounts, GenerationOption, GenerationRequest, Limits } from '../../domain/media-generations.ts'
import type { OperationRequest } from '../../domain/media-operations.ts'
import { SettingsFileError } from '../../domain/settings-file.ts'
import { TASK_ERRORS, type TaskErrorCode, type TaskErrorDetails } from '../../domain/task.ts'
import { parseEngines, readText, type EngineSetting, type Route } from './engines-file.ts'
import type { Outside } from './provider/environment.ts'
import { EMPTY, fieldRefused, nextTable, offerOf, qualityOf, routeStates, runnerOf, type JobOfRun, type Table } from './routing-table.ts'

export type EngineRequest = GenerationRequest | OperationRequest

/** A source of an operation: fetched, its type known from its content, its header and size within the route's limits. */
export type Input = {
  /** Media in the order of merging, then the mask. */
  role: 'media' | 'mask'
  contentType: string
  bytes: number
  /** Streams the content from the files backend; may be called more than once. Throws `Unavailable`. */
  read(): AsyncIterable<Uint8Array>
}

/** One result. */
export type Medium = Pick<Made, 'body' | 'bytes' | 'release' | 'contentType' | 'facts'>

/** What was made. `used` is what it took, in the units of the price list; it is charged up to what was held. */
export type Made = {
  outcome: 'made'
  body: Uint8Array | AsyncIterable<Uint8Array>
  /** Of a `body` that is a stream, where it is known. */
  bytes?: number
  /** Where it is there, `body` may be read again until this is called, once the result is stored or given up. */
  release?(): Promise<void>
  contentType: string
  facts: { width: number | null; height: number | null; durationMs: number | null }
  used: Amounts
  /** Further results of a request for several, as far as they were made; `used` has all of them. */
  others?: readonly Medium[]
}

/** Why nothing was made. `message` is public and never names or quotes the provider; `cause` is only logged. */
export type NotMade = {
  outcome: 'failed'
  code: Exclude<TaskErrorCode, 'canceled'>
  retryable: boolean
  message: string
  details?: TaskErrorDetails
  /** The number of the input at fault: its place in the request becomes `details.source`. */
  input?: number
  cause?: unknown
  /** Nothing was begun, and may be after so long. The task waits for it without losing an attempt, for an hour from its first run. */
  retryAfterMs?: number
  /** Its job has ended, and only fetching the result failed: the next attempt resumes it. */
  keepsJob?: true
}

export type Control = {
  /** Aborted when the task is canceled (the reason has `why: 'canceled'`), its lease is lost, or the process stops. */
  signal: AbortSignal
  /** Reports percents from 0 to 99. */
  progress: (percent: number) => void
  /** Sources of an operation, or the picture that a video begins with. */
  inputs: readonly Input[]
  /**
   * The provider's job of an earlier run whose lease was lost or that was handed back, to be resumed, and its engine, unknown for jobs of
   * earlier versions; null when there is none. `remember` stores a new one under this run's epoch, before it is polled; it rejects when the
   * lease is lost or the store is unavailable.
   */
  job: { id: string | null; engine?: string | undefined; remember(id: string, engine: string): Promise<void> }
  /** The same for every run of one attempt, after a lost lease too; for providers that detect duplicate requests. */
  idempotencyKey: string
}

/** What one run of an engine gets beside its request: the route's model, the limits of each result, and what the model calls the requested quality. */
export type Run = Omit<Control, 'job'> & { job: JobOfRun; model: string | null; limits: Limits; quality?: string }

export type Engine = {
  /** The kinds and operations that it makes in this process, each with the formats that it writes, the default first. */
  offers: Readonly<Record<string, { formats: readonly [string, ...string[]] }>>
  /** What it would make if something were installed: a sentence for the operator, by kind or operation. */
  missing?: Readonly<Record<string, string>>
  /** Resolves once `offers` and `missing` are final, for an engine that examines the machine after it was opened. Never rejects. */
  settled?: Promise<void>
  /** The most that a request can take of the route's model within its limits; `max` are the route's own, where those follow from the sources. Pure. */
  quote(request: EngineRequest, limits: Limits, model?: string | null, max?: Limits): Amounts
  /** The fields of a generation that a model takes beside the usual ones; none when left out. Pure. */
  options?(kind: string, model: string | null): readonly GenerationOption[]
  /** The parameter of the API that the request has and that nothing behind the engine takes, or null; `roles` are those of its sources. Pure. */
  unsupported?(request: EngineRequest, roles: readonly Input['role'][]): string | null
  /** Makes it; the result may not exceed the limits. Rejects soon once `signal` is aborted, with its reason. Whatever else it throws is `internal`, and tried again. */
  run(request: EngineRequest, run: Run): Promise<Made | NotMade>
  /** Releases everything, after the runs that are under way. Twice is harmless. */
  close(): Promise<void>
}

/**
 * Opens an engine under its name in the file, with the other members of its entry. Throws an Error whose message says what is wrong with
 * them. Where `runs` is false, it is only asked for quotes and offers what the machines of the workers can make.
 */
export type OpenEngine = (name: string, options: Record<string, unknown>, process?: { runs: boolean }) => Promise<Engine>

/** A kind or operation that is available now. */
export type Offer = {
  route: Route
  formats: readonly [string, ...string[]]
  /** What kind of engine makes it, for clients, who are not told its type. */
  engine: 'local' | 'provider' | 'preview' | 'other'
  /** The fields of a generation that can be had beside the usual ones. */
  options: readonly GenerationOption[]
  /** `limits` of the result; by default those of the route. */
  quote(request: EngineRequest, limits?: Limits): Amounts
  unsupported(request: EngineRequest, roles: readonly Input['role'][]): string | null
}

export type RouteState = { kind: string; engine: string; missing: string | null }

export type Engines = {
  /** Adds a type that engines of the file may have. Only before `ready`; throws when the type exists. */
  add(type: string, open: OpenEngine): void
  /** Opens the engines of the file. Throws an Error that names the line of the one that cannot be opened. */
  ready(): Promise<void>
  /** How a kind or operation is made now, or null: `not_supported`. */
  offer(kind: string): Offer | null
  /** Runs a request by the route of its kind or operation, for at most the route's time; `limits` as in `quote`. Rejects only with the reason of an aborted `signal`. */
  run(request: EngineRequest, control: Control, limits?: Limits): Promise<Made | NotMade>
  /** Every route, and why it is not available in this process: a sentence, or null when it is. Waits for engines that examine the machine. */
  routes(): Promise<RouteState[]>
  /** Reads the file again now. A bad file is logged and changes nothing. */
  reload(): Promise<void>
  close(): Promise<void>
}

export type EnginesConfig = {
  /** The ENGINES file; the built-in table when null. */
  file: string | null
  log: { info(facts: object, message: string): void; warn(facts: object, message: string): void }
  /** What engines of the types `openai` and `replicate` use; without it there are none. */
  providers?: Outside
  /** How often the file is read again. */
  pollMs?: number
  /** False in a process that only quotes: it trusts the file. The built-in table is what the machine itself can make. */
  runs?: boolean
}

/** A failure with its public sentence, to be returned from `run`; `details` are public as well. */
export function notMade(code: NotMade['code'], retryable: boolean, cause?: unknown, details?: TaskErrorDetails): NotMade {
  return {
    outcome: 'failed',
    code,
    retryable,
    message: TASK_ERRORS[code],
    ...(details && { details }),
    ...(cause !== undefined && { cause }),
  }
}

/** Opens the backend on the file's routing table. Throws a `SettingsFileError` when the file is invalid. */
export async function openEngines({ file, log, providers, pollMs, runs = true }: EnginesConfig): Promise<Engines> {
  const types = builtInTypes(providers)
  let table = EMPTY
  const closing: Promise<unknown>[] = []
  let state: 'opened' | 'ready' | 'closed' = 'opened'
  let tried: string | null = null
  let watched: WatchedFile | null = null
  parseEngines(file, await readText(file))

  /** Replaces the table by the file's. An engine whose entry is the same stays open. */
  async function load(): Promise<void> {
    const text = await readText(file)
    // A text is tried once, valid or not: trying opens engines.
    if (text === tried) return
    tried = text
    const { next, removed } = await nextTable(table, parseEngines(file, text), (setting) =>
      openOne(types, file, setting, { runs: runs || file === null }),
    )
    table = next
    if (watched) log.info({ event: 'engines_reloaded', file }, 'ENGINES file reloaded')
    void warnOfMissing(next)
    // Not awaited: their runs may take hours, and the file may change again meanwhile.
    closing.push(...removed.map((engine) => engine.close().catch(notClosed)))
  }

  async function warnOfMissing(loaded: Table): Promise<void> {
    for (const { kind, engine, missing } of await routeStates(loaded)) {
      if (missing !== null && table === loaded) log.warn({ event: 'route_unavailable', kind, engine, missing }, 'route not available')
    }
  }

  function refused(err: Error): void {
    log.warn({ event: 'engines_refused', file, err }, 'ENGINES file refused, the earlier table stays in use')
  }

  function notClosed(err: unknown): void {
    log.warn({ event: 'engine_not_closed', err }, 'engine not closed')
  }

  return {
    offer: (kind) => offerOf(table, kind),
    routes: () => routeStates(table),
    reload: async () => watched?.reload(),
    add(type, open) {
      if (state !== 'opened') throw new Error(`engines of type ${type} are added too late: before the program is ready`)
      if (types.has(type)) throw new Error(`engines of type ${type} are there already`)
      types.set(type, open)
    },
    async ready() {
      if (state !== 'opened') return
      state = 'ready'
      if (file === null) await load()
      else watched = await watchFile(load, refused, pollMs)
    },
    async run(request, control, limits) {
      const offer = offerOf(table, request.kind)
      if (!offer) return notMade('not_supported', false)
      const { route } = offer
      const { engine, job } = runnerOf(table, route, control.job)
      if (control.job.id !== null && job.id === null)
        log.warn({ event: 'job_given_up', kind: route.kind, job: control.job.id, engine: control.job.engine }, 'engine of a job is gone')
      const refused = fieldRefused(request, job.id, control.inputs, offer)
      if (refused) return notMade('not_supported', false, new Error(`no ${refused} by this route`))
      const run = { ...control, job, model: route.model, limits: limits ?? route.max, ...qualityOf(request, route) }
      return runWithin(engine, request, route, run)
    },
    async close() {
      if (state === 'closed') return
      state = 'closed'
      await watched?.close()
      await Promise.all([...closing, ...[...table.engines.values()].map(({ engine }) => engine.close())])
    },
  }
}

/** The types of this program. Each adapter is loaded when the file has an engine of its type. */
function builtInTypes(providers: Outside | undefined): Map<string, OpenEngine> {
  const types = new Map<string, OpenEngine>()
  types.set('preview', async (...entry) => (await import('./preview/preview.ts')).openPreview(...entry))
  types.set('local', async (...entry) => (await import('./local/local.ts')).openLocal(...entry))
  types.set('local-image', async (...entry) => (await import('../../../engines/image/image-engine.ts')).openLocalImage(...entry))
  if (!providers) return types
  types.set('openai', async (...entry) => (await import('./openai/openai.ts')).openaiEngines(providers)(...entry))
  types.set('replicate', async (...entry) => (await import('./replicate/replicate.ts')).replicateEngines(providers)(...entry))
  return types
}

async function openOne(
  types: Map<string, OpenEngine>,
  file: string | null,
  { name, type, options, line }: EngineSetting,
  process: { runs: boolean },
): Promise<Engine> {
  try {
    const open = types.get(type)
    if (!open) throw new Error(`type ${type} is not available; there are: ${[...types.keys()].join(', ')}`)
    return await open(name, options, process)
  } catch (error) {
    const reason = error instanceof Error ? error.message : 'cannot be opened'
    throw new SettingsFileError('ENGINES', file ?? 'built-in table', line, `engine ${name}: ${reason}`)
  }
}

/** Runs for at most the route's time. What an engine throws becomes an outcome, unless the caller aborted. */
async function runWithin(engine: Engine, request: EngineRequest, route: Route, control: Run): Promise<Made | NotMade> {
  const { signal } = control
  signal.throwIfAborted()
  const timeout = AbortSignal.timeout(route.timeoutMs)
  let reached = -1
  const progress = (percent: number): void => {
    const next = Math.min(99, Math.floor(percent))
    if (next > reached) control.progress((reached = next))
  }
  try {
    const answer = await engine.run(request, { ...control, signal: AbortSignal.any([signal, timeout]), progress })
    if (answer.outcome === 'failed') return answer
    const { used } = answer
    // Checked before the result is stored, because the charge comes after.
    if ([used.Job, used.Second, used.Megapixel].every((amount) => Number.isSafeInteger(amount) && amount >= 0)) return answer
    const sentence = `engine ${route.engine} used ${JSON.stringify(used)}: amounts are whole thousandths of a unit, and not negative`
    return notMade('internal', false, new Error(sentence))
  } catch (cause) {
    if (signal.aborted) throw signal.reason
    const failure = notMade(timeout.aborted ? 'provider_timeout' : 'internal', true, cause)
    // What a job that has ended made is paid for.
    return control.job.hasEnded ? { ...failure, keepsJob: true } : failure
  }
}
