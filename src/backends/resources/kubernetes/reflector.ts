/** Keeps a cache equal to a collection: list, then watch from there, and again after whatever breaks. */
import { setTimeout as pause } from 'node:timers/promises'
import { Unavailable } from '../../../domain/errors.ts'
import type { Cache, Change } from './informer-cache.ts'
import { unexpected, type Answer, type Client } from './api-client.ts'
import { collectionPath, kept, type Collection, type KubeObject, type List } from './api-objects.ts'
import { watch } from './watch-stream.ts'

export type ReflectorOptions = {
  client: Client
  collection: Collection
  /** A namespace, or null for all. */
  scope: string | null
  labelSelector?: string
  cache: Cache
  changed: (change: Change) => void
  log: { warn(o: object, m: string): void }
  /** In [0, 1). */
  random?: () => number
  /** Everything is listed again that often, in case the watch missed something. */
  relistMs?: number
  watchSeconds?: number
  pageSize?: number
}

export type Figures = {
  lists: number
  /** Watches that were begun. */
  watches: number
  /** Failures of a list or a watch, one that ended because the server forgot its version included. */
  failures: number
  /** Changes that only a list told, although the watch had passed them. */
  missed: number
  /** Since the watch last said anything, a bookmark included; since the first list while it has said nothing, and null before that. */
  lastEventAgeMs: number | null
}

export type Reflector = {
  /** Resolves when everything was listed once, or the server refused it for want of a right or of the namespace; rejects if it is stopped before. */
  start(): Promise<void>
  /** Lists everything again, now, and while that fails later: what is cached afterwards is no older than this call. Rejects if it is stopped before. */
  refresh(): Promise<void>
  /** Everything was listed, at least once. */
  isSynced(): boolean
  /** What is wrong, null while the collection can be read. */
  trouble(): string | null
  figures(): Figures
  stop(): Promise<void>
}

const FIRST_RETRY_MS = 100
const LONGEST_RETRY_MS = 10_000
/** A watch that ends sooner, without a word, is a sign of trouble and not repeated at once. */
const SHORT_MS = 1_000
/** A server tells at least a bookmark every minute; of a version that it has not reached yet, as after a restore from a backup, it tells nothing at all. */
const SILENT_MS = 90_000
const MOST_PAGES = 10_000
/** A list that is due and fails is tried again so many times in the time until the next would be. */
const RELIST_TRIES = 4

export function openReflector(options: ReflectorOptions): Reflector {
  const { client, collection, scope, cache, changed, log, random = Math.random, relistMs = 600_000, watchSeconds = 300, pageSize = 500 } = options
  const path = collectionPath(collection, scope)
  const query: Record<string, string> = options.labelSelector === undefined ? {} : { labelSelector: options.labelSelector }
  const stopping = new AbortController()
  const figures = { lists: 0, watches: 0, failures: 0, missed: 0 }
  const synced = Promise.withResolvers<void>()
  let isSynced = false
  /** Who waits for the next list. */
  const askers = openAskers(stopping.signal)
  let lastEventAt: number | null = null
  let trouble: string | null = `${collection.plural} were not listed yet`
  let running: Promise<void> | null = null
  let listedAtMs = 0
  let relistAtMs = 0
  const jittered = (ms: number) => ms * (1 + random() / 5)

  /** Lists for all who had asked by then. */
  async function list(): Promise<string> {
    const asked = askers.take()
    try {
      const version = await listAll()
      for (const { resolve } of asked) resolve()
      return version
    } catch (error) {
      askers.putBack(asked)
      throw error
    }
  }

  /** Takes over everything there is. Returns the version from which a watch goes on. */
  async function listAll(): Promise<string> {
    const found = await everything(client, path, { ...query, limit: String(pageSize) })
    if ('status' in found) {
      // There may be others who can be served.
      if (found.status === 403 || found.status === 404) synced.resolve()
      throw unexpected('GET', path, found)
    }
    const { changes, missed } = cache.replace(scope, found.items, found.version)
    figures.lists++
    figures.missed += missed
    if (missed > 0) log.warn({ path, missed }, 'the watch had missed changes, which a list has found')
    for (const change of changes) changed(change)
    trouble = null
    listedAtMs = performance.now()
    relistAtMs = listedAtMs + jittered(relistMs)
    lastEventAt ??= listedAtMs
    isSynced = true
    synced.resolve()
    return found.version
  }

  async function watchFrom(version: string, untilMs: number): Promise<string | null> {
    let position = version
    const startMs = performance.now()
    const seconds = Math.max(1, Math.min(watchSeconds * (1 + random()), (untilMs - startMs) / 1000))
    figures.watches++
    const end = await watch(client, {
      path,
      query,
      version,
      timeoutSeconds: Math.round(seconds),
      signal: askers.interrupt(),
      opened() {
        trouble = null
      },
      each({ type, object }) {
        position = object.metadata.resourceVersion
        lastEventAt = performance.now()
        if (type === 'BOOKMARK') return cache.passed(scope, position)
        const change = type === 'DELETED' ? cache.remove(scope, object) : cache.put(scope, object)
        if (change) changed(change)
      },
    }).catch((error: unknown) => {
      if (askers.areWaiting()) return 'ended' as const
      // What was seen before it broke was seen.
      if (position === version) throw error
      note(error)
      return 'ended' as const
    })
    if (end === 'expired') return null
    if (position === version && performance.now() - startMs < SHORT_MS && !askers.areWaiting()) throw new Unavailable('resources', new Error(`the watch of ${path} ended at once`))
    return position
  }

  /** The version itself, or that of a list if there is none or a list is due. */
  async function versionToWatch(version: string | null): Promise<string> {
    if (version === null) return list()
    if (performance.now() < relistAtMs && !askers.areWaiting()) return version
    try {
      return await list()
    } catch (error) {
      if (askers.areWaiting()) throw error
      // A server under load may refuse lists, and yet tell changes. Whether it still knows that version, the watch will hear.
      note(error, 'a collection could not be listed again; it is watched all the same')
      relistAtMs = performance.now() + jittered(relistMs / RELIST_TRIES)
      return version
    }
  }

  function note(error: unknown, message = 'a collection cannot be followed at the moment'): void {
    if (stopping.signal.aborted) return
    figures.failures++
    const cause = error instanceof Unavailable ? error.cause : error
    trouble = cause instanceof Error ? `${collection.plural}: ${cause.message}` : collection.plural
    log.warn({ err: cause, path }, message)
  }

  async function run(): Promise<void> {
    let version: string | null = null
    let failures = 0
    while (!stopping.signal.aborted) {
      let watchedAtMs = Infinity
      try {
        version = await versionToWatch(version)
        watchedAtMs = performance.now()
        version = await watchFrom(version, relistAtMs)
        if (version === null) {
          const gone = new Unavailable('resources', new Error(`the server does not know any more from where ${path} was watched`))
          // What was listed long ago is forgotten in time, and listed again at once. A server that forgets what it has just said would be asked for lists without end.
          if (performance.now() - listedAtMs < LONGEST_RETRY_MS) throw gone
          note(gone)
        } else failures = 0
      } catch (error) {
        note(error)
        // Only of a watch: a list that takes long is no sign that things are well.
        const watchedMs = performance.now() - watchedAtMs
        if (watchedMs > LONGEST_RETRY_MS) failures = 0
        if (watchedMs > SILENT_MS) relistAtMs = 0
        const ms = Math.min(FIRST_RETRY_MS * 2 ** failures++, LONGEST_RETRY_MS) * (1 - random() / 2)
        await pause(ms, undefined, { signal: askers.interrupt() }).catch(() => {})
      }
    }
  }

  return {
    start() {
      running ??= run()
      return synced.promise
    },
    refresh: askers.ask,
    isSynced: () => isSynced,
    trouble: () => trouble,
    figures: () => ({ ...figures, lastEventAgeMs: lastEventAt === null ? null : performance.now() - lastEventAt }),
    async stop() {
      stopping.abort()
      synced.promise.catch(() => {})
      synced.reject(closed())
      for (const { reject } of askers.take()) reject(closed())
      await running
    },
  }
}

/** Those who wait for the next list, and what their asking interrupts. */
function openAskers(stopping: AbortSignal) {
  let asked: PromiseWithResolvers<void>[] = []
  let interrupt = new AbortController()
  return {
    areWaiting: () => asked.length > 0,
    /** Aborted once somebody asks, and at the stop. */
    interrupt: () => AbortSignal.any([stopping, interrupt.signal]),
    ask(): Promise<void> {
      const asker = Promise.withResolvers<void>()
      if (stopping.aborted) asker.reject(closed())
      else asked.push(asker)
      interrupt.abort()
      return asker.promise
    },
    /** Who asks from now on waits for the list after the next. */
    take(): PromiseWithResolvers<void>[] {
      const taken = asked
      asked = []
      interrupt = new AbortController()
      return taken
    },
    /** They wait for the next list, which comes when it comes. */
    putBack(taken: PromiseWithResolvers<void>[]): void {
      asked = [...taken, ...asked]
    },
  }
}

/** All pages of a list, or the first answer that is none. */
async function everything(client: Client, path: string, query: Record<string, string>): Promise<{ items: KubeObject[]; version: string } | Answer<object>> {
  const items: KubeObject[] = []
  let next: string | undefined
  for (let pages = 0; pages < MOST_PAGES; pages++) {
    const answer = await client.request<List>('GET', path, { query: { ...query, ...(next !== undefined && { continue: next }) } })
    if (answer.status !== 200) return answer
    const { metadata, items: page } = answer.body
    for (const item of page) items.push(kept(item))
    next = metadata.continue || undefined
    if (next === undefined) return { items, version: metadata.resourceVersion }
  }
  throw new Unavailable('resources', new Error(`${path} has more than ${MOST_PAGES} pages`))
}

function closed(): Unavailable {
  return new Unavailable('resources', new Error('it was closed'))
}
