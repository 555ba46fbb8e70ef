/** Reflector: keeps an informer cache equal to a collection by list and watch, with jittered back-off, relist after 410 Gone, and a periodic relist. */
import { setTimeout as pause } from 'node:timers/promises'
import { Unavailable } from '../../../domain/errors.ts'
import type { ApiServerStats } from '../resources.ts'
import type { Cache, Change } from './informer-cache.ts'
import { unexpected, type ApiResponse, type Client } from './api-client.ts'
import { collectionPath, kept, type Collection, type KubeObject, type List } from './api-objects.ts'
import { watch } from './watch-stream.ts'

export type ReflectorOptions = {
  client: Client
  collection: Collection
  /** A namespace, or null for all. */
  scope: string | null
  labelSelector?: string
  /** What to keep of an object, which it may change; `kept` by default. */
  keep?: (object: KubeObject) => KubeObject
  cache: Cache
  changed: (change: Change) => void
  log: { warn(o: object, m: string): void }
  /** In [0, 1). */
  random?: () => number
  /** Interval of the lists that find changes which the watch missed. */
  relistMs?: number
  watchSeconds?: number
  /** Objects of each page. Without it, pages of small objects grow. */
  pageSize?: number
}

/** A watch that ended because its version had expired is a failure; bookmarks are events. */
export type ReflectorStats = Pick<ApiServerStats, 'lists' | 'watches' | 'failures' | 'missed' | 'lastEventAgeMs'>

export type Reflector = {
  /** Resolves after the first list, or when the server refuses it for a missing permission or namespace. Rejects if stopped before. */
  start(): Promise<void>
  /**
   * Lists everything again, with retries: the cache is then no older than this call. Resolves too when the server refuses the list for a
   * missing permission or namespace; the collection is not synced then. Rejects if stopped before.
   */
  refresh(): Promise<void>
  /** True after the first list, until a `refresh` is refused. */
  isSynced(): boolean
  /** The present error as a sentence; null while the collection can be read. */
  lastError(): string | null
  stats(): ReflectorStats
  stop(): Promise<void>
}

const INITIAL_RETRY_MS = 100
const MAX_RETRY_MS = 10_000
/** A watch that ends sooner without an event counts as failed and backs off. */
const SHORT_WATCH_MS = 1_000
/** A server sends a bookmark at least every minute, but nothing for a version that it has not reached yet, as after a restore from a backup. */
const SILENT_WATCH_MS = 90_000
/** Objects of the first page: tenants can make each as large as the API server stores, some 1.5 MiB, and a page is parsed at once. */
const PAGE_SIZE = 20
/** A page of more objects is so large at most: in bytes, and in objects, by growing from page to page. */
const LARGE_PAGE = { bytes: 4 * 1024 * 1024, objects: 500, growth: 4 }
const MAX_PAGES = 100_000
/** Tries per relist interval while the periodic list fails. */
const RELIST_TRIES = 4

export function openReflector(options: ReflectorOptions): Reflector {
  const { client, collection, scope, cache, changed, log, keep = kept } = options
  const { random = Math.random, relistMs = 600_000, watchSeconds = 300, pageSize } = options
  const path = collectionPath(collection, scope)
  const query: Record<string, string> = options.labelSelector === undefined ? {} : { labelSelector: options.labelSelector }
  const stopping = new AbortController()
  const stats = { lists: 0, watches: 0, failures: 0, missed: 0 }
  const synced = Promise.withResolvers<void>()
  let isSynced = false
  const relistRequests = openRelistRequests(stopping.signal)
  let lastEventAt: number | null = null
  let lastError: string | null = `${collection.plural} were not listed yet`
  let running: Promise<void> | null = null
  let listedAtMs = 0
  let relistAtMs = 0
  const jittered = (ms: number) => ms * (1 + random() / 5)

  /** Lists the collection and resolves the relist requests made before. Returns the version to watch from. */
  async function list(): Promise<string> {
    const requests = relistRequests.take()
    try {
      return await listAll(requests)
    } catch (error) {
      relistRequests.putBack(requests)
      throw error
    }
  }

  async function listAll(requests: PromiseWithResolvers<void>[]): Promise<string> {
    const listed = await allPages(client, path, query, pageSize, keep)
    if ('status' in listed) {
      // Not fatal: other namespaces may be readable. Who asked for a fresh cache must not take this one for that.
      if (listed.status === 403 || listed.status === 404) {
        if (requests.length > 0) isSynced = false
        for (const { resolve } of [synced, ...requests.splice(0)]) resolve()
      }
      if (listed.status === 404 && collection.crd !== undefined) throw notInstalled(collection.crd)
      throw unexpected('GET', path, listed)
    }
    const { changes, missed } = cache.replace(scope, listed.items, listed.version)
    stats.lists++
    stats.missed += missed
    if (missed > 0) log.warn({ event: 'watch_missed_changes', path, missed }, 'list found changes that the watch missed')
    for (const change of changes) changed(change)
    lastError = null
    listedAtMs = performance.now()
    relistAtMs = listedAtMs + jittered(relistMs)
    lastEventAt ??= listedAtMs
    isSynced = true
    for (const { resolve } of [synced, ...requests]) resolve()
    return listed.version
  }

  async function watchFrom(version: string, untilMs: number): Promise<string | null> {
    let position = version
    const startMs = performance.now()
    const seconds = Math.max(1, Math.min(watchSeconds * (1 + random()), (untilMs - startMs) / 1000))
    stats.watches++
    const end = await watch(client, {
      path,
      query,
      version,
      timeoutSeconds: Math.round(seconds),
      signal: relistRequests.signal(),
      opened() {
        lastError = null
      },
      each({ type, object: received }) {
        const object = keep(received)
        position = object.metadata.resourceVersion
        lastEventAt = performance.now()
        if (type === 'BOOKMARK') return cache.passed(scope, position)
        const change = type === 'DELETED' ? cache.remove(scope, object) : cache.put(scope, object)
        if (change) changed(change)
      },
    }).catch((error: unknown) => {
      if (relistRequests.arePending()) return 'ended' as const
      // Events before the failure are applied, so the watch continues from there.
      if (position === version) throw error
      recordFailure(error)
      return 'ended' as const
    })
    if (end === 'expired') return null
    if (position === version && performance.now() - startMs < SHORT_WATCH_MS && !relistRequests.arePending())
      throw new Unavailable('resources', new Error(`the watch of ${path} ended at once`))
    return position
  }

  /** `version`, or that of a list if there is none, or a list is due or requested. */
  async function versionToWatch(version: string | null): Promise<string> {
    if (version === null || !isSynced) return list()
    if (performance.now() < relistAtMs && !relistRequests.arePending()) return version
    try {
      return await list()
    } catch (error) {
      if (relistRequests.arePending() || !isSynced) throw error
      // A server under load may refuse lists and still serve watches. The watch finds out whether the version has expired.
      recordFailure(error, { event: 'relist_failed', message: 'relist failed; the watch continues' })
      relistAtMs = performance.now() + jittered(relistMs / RELIST_TRIES)
      return version
    }
  }

  function recordFailure(error: unknown, { event, message } = { event: 'list_watch_failed', message: 'list or watch failed' }): void {
    if (stopping.signal.aborted) return
    stats.failures++
    const cause = error instanceof Unavailable ? error.cause : error
    lastError = cause instanceof Error ? `${collection.plural}: ${cause.message}` : collection.plural
    log.warn({ event, err: cause, path }, message)
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
          const expired = new Unavailable('resources', new Error(`the resource version of the watch of ${path} has expired`))
          // An old version expires in the course of time, and is listed again at once. Without back-off, a server that expires fresh
          // versions would be listed in an endless loop.
          if (performance.now() - listedAtMs < MAX_RETRY_MS) throw expired
          recordFailure(expired)
        } else failures = 0
      } catch (error) {
        recordFailure(error)
        // Only a long watch resets the back-off: a slow list is no sign of a healthy server.
        const watchedMs = performance.now() - watchedAtMs
        if (watchedMs > MAX_RETRY_MS) failures = 0
        if (watchedMs > SILENT_WATCH_MS) relistAtMs = 0
        const ms = Math.min(INITIAL_RETRY_MS * 2 ** failures++, MAX_RETRY_MS) * (1 - random() / 2)
        await pause(ms, undefined, { signal: relistRequests.signal() }).catch(() => {})
      }
    }
  }

  return {
    start() {
      running ??= run()
      return synced.promise
    },
    refresh: relistRequests.add,
    isSynced: () => isSynced,
    lastError: () => lastError,
    stats: () => ({ ...stats, lastEventAgeMs: lastEventAt === null ? null : performance.now() - lastEventAt }),
    async stop() {
      stopping.abort()
      synced.promise.catch(() => {})
      synced.reject(closed())
      for (const { reject } of relistRequests.take()) reject(closed())
      await running
    },
  }
}

function notInstalled(crd: string): Unavailable {
  const remedy = 'The chart installs it with crds.enabled; without that, a cluster administrator applies crds/'
  return new Unavailable('resources', new Error(`the CustomResourceDefinition ${crd} is not installed. ${remedy}`))
}

/** Pending calls of `refresh`. A new one interrupts the watch or the back-off. */
function openRelistRequests(stopping: AbortSignal) {
  let pending: PromiseWithResolvers<void>[] = []
  let interrupt = new AbortController()
  return {
    arePending: () => pending.length > 0,
    /** Aborted by the next request and at the stop. */
    signal: () => AbortSignal.any([stopping, interrupt.signal]),
    add(): Promise<void> {
      const request = Promise.withResolvers<void>()
      if (stopping.aborted) request.reject(closed())
      else pending.push(request)
      interrupt.abort()
      return request.promise
    },
    /** Takes the pending requests for the list that starts now; later ones wait for the list after it. */
    take(): PromiseWithResolvers<void>[] {
      const taken = pending
      pending = []
      interrupt = new AbortController()
      return taken
    },
    /** Returns the requests of a failed list, without an interruption. */
    putBack(taken: PromiseWithResolvers<void>[]): void {
      pending = [...taken, ...pending]
    },
  }
}

/** All pages of a list, or the first response that is not 200. */
async function allPages(
  client: Client,
  path: string,
  query: Record<string, string>,
  pageSize: number | undefined,
  keep: (object: KubeObject) => KubeObject,
): Promise<{ items: KubeObject[]; version: string } | ApiResponse<object>> {
  const { bytes, objects, growth } = LARGE_PAGE
  const items: KubeObject[] = []
  let next: string | undefined
  const least = pageSize ?? PAGE_SIZE
  let limit = least
  let most = pageSize ?? objects
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const response = await client.request<List>('GET', path, {
      query: { ...query, limit: String(limit), ...(next !== undefined && { continue: next }) },
      ...(limit > least && { maxBytes: bytes }),
    })
    if (response.status === 413 && limit > least) {
      // Smaller pages for the rest of this list: what follows may be as large.
      limit = most = Math.max(least, Math.floor(limit / growth))
      continue
    }
    if (response.status !== 200) return response
    const { metadata, items: page } = response.body
    for (const item of page) items.push(keep(item))
    next = metadata.continue || undefined
    if (next === undefined) return { items, version: metadata.resourceVersion }
    limit = Math.min(limit * growth, most)
  }
  throw new Unavailable('resources', new Error(`${path} has more than ${MAX_PAGES} pages`))
}

function closed(): Unavailable {
  return new Unavailable('resources', new Error('the source was closed'))
}
