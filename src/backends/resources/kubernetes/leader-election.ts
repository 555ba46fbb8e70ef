/**
 * Leader election by a Lease (coordination.k8s.io/v1), as in client-go: a lease has expired when it was not seen to change for its own duration by the local
 * clock, so that the clocks of the processes need not agree.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { V1Lease } from '@kubernetes/client-node'
import { Unavailable } from '../../../domain/errors.ts'
import { unexpected, type Client } from './api-client.ts'
import type { Wire } from './api-objects.ts'
import { microTime } from './event-recorder.ts'

export type LeaderOptions = {
  client: Client
  namespace: string
  name: string
  /** Unique per process and start. */
  identity: string
  changed: (isLeading: boolean) => void
  log: { info(o: object, m: string): void; warn(o: object, m: string): void }
  random?: () => number
  time?: Time
  durationMs?: number
  /** A leader that could not renew for so long stops leading, before another process may take the lease. */
  renewDeadlineMs?: number
  retryMs?: number
}

/** A monotonic clock, which also advances while the process is stopped, and a pause by it. */
type Time = {
  now(): number
  /** Rejects when aborted. */
  pause(ms: number, signal: AbortSignal): Promise<unknown>
}

const MONOTONIC: Time = { now: () => performance.now(), pause: (ms, signal) => pause(ms, undefined, { signal }) }

export type Leader = {
  /** Resolves when the first try has ended, with or without success. */
  firstTry: Promise<void>
  /** False once the renew deadline has passed, even if the process was stopped and `changed` was not called yet. Check it before each write. */
  isLeading(): boolean
  /** The error of the last try to read or write the lease, or null. */
  lastError(): string | null
  /** Releases the lease, so that another process takes over at once, and ends the election. */
  resign(): Promise<void>
}

type Lease = Required<Pick<Wire<V1Lease>, 'metadata' | 'spec'>>

/** Starts the election. */
export function openLeader(options: LeaderOptions): Leader {
  const {
    client,
    namespace,
    name,
    identity,
    changed,
    log,
    random = Math.random,
    time = MONOTONIC,
    durationMs = 15_000,
    renewDeadlineMs = 10_000,
    retryMs = 2_000,
  } = options
  const collection = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`
  const path = `${collection}/${name}`
  const stopping = new AbortController()
  /** Version of the lease when it last changed, and when it expires by the monotonic clock. */
  let observed: { version: string; expiresAt: number } | null = null
  let isLeading = false
  let lastError: string | null = null
  /** A write of this process may have acquired the lease, even if its response came too late. */
  let mayHold = false
  let renewedAt = 0
  const first = Promise.withResolvers<void>()
  const running = run().finally(() => first.resolve())

  function setLeading(next: boolean): void {
    if (isLeading === next) return
    isLeading = next
    const fields = { lease: `${namespace}/${name}`, identity }
    if (next) log.info({ event: 'leadership_acquired', ...fields }, 'leadership acquired')
    else log.info({ event: 'leadership_lost', ...fields }, 'leadership lost')
    changed(next)
  }

  /** Time until the renew deadline of a leader. */
  function untilDeadlineMs(): number {
    return Math.max(0, renewedAt + renewDeadlineMs - time.now())
  }

  /** Time until the next try: for a follower no later than the observed lease expires. Jitter keeps the tries of followers apart. */
  function waitMs(): number {
    if (isLeading) return Math.min(retryMs, untilDeadlineMs())
    const untilExpiryMs = (observed?.expiresAt ?? 0) - time.now()
    return Math.min(retryMs * (1 + random() / 5), untilExpiryMs > 0 ? untilExpiryMs : Infinity)
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      // Another process may have led since, even if the lease is free again.
      if (untilDeadlineMs() === 0) setLeading(false)
      const startedAt = time.now()
      const outcome = await tryOnce().catch(recordFailure)
      if (stopping.signal.aborted) return
      if (outcome !== 'failed') lastError = null
      if (outcome === 'renewed') renewedAt = startedAt
      // A renewal that ends after its own deadline does not count.
      setLeading((outcome === 'renewed' || (outcome === 'failed' && isLeading)) && untilDeadlineMs() > 0)
      first.resolve()
      await time.pause(waitMs(), stopping.signal).catch(() => {})
    }
  }

  function recordFailure(error: unknown): 'failed' {
    const err = error instanceof Unavailable ? error.cause : error
    lastError = `lease: ${err instanceof Error ? err.message : 'it could not be read or written'}`
    log.warn({ event: 'lease_request_failed', lease: `${namespace}/${name}`, err }, 'lease request failed')
    return 'failed'
  }

  /** `renewed` if this process holds the lease now, false if another process holds it. */
  async function tryOnce(): Promise<'renewed' | false> {
    const response = await within(client.request<Lease>('GET', path))
    if (response.status === 404) return write('POST', null)
    if (response.status !== 200) throw unexpected('GET', path, response)
    const lease = response.body
    const { holderIdentity, leaseDurationSeconds } = lease.spec
    const version = lease.metadata.resourceVersion ?? ''
    if (observed?.version !== version) observed = { version, expiresAt: time.now() + (leaseDurationSeconds ?? durationMs / 1000) * 1000 }
    const isFree = !holderIdentity || time.now() >= observed.expiresAt
    if (holderIdentity !== identity && !isFree) return false
    return write('PUT', lease)
  }

  async function write(method: 'POST' | 'PUT', lease: Lease | null): Promise<'renewed' | false> {
    const now = microTime(Date.now())
    const isRenewal = lease?.spec.holderIdentity === identity
    const spec = {
      holderIdentity: identity,
      leaseDurationSeconds: Math.ceil(durationMs / 1000),
      acquireTime: (isRenewal && lease.spec.acquireTime) || now,
      renewTime: now,
      leaseTransitions: (lease?.spec.leaseTransitions ?? -1) + (isRenewal ? 0 : 1),
    }
    const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: lease?.metadata ?? { name, namespace }, spec }
    mayHold = true
    const target = method === 'POST' ? collection : path
    const response = await within(client.request<Lease>(method, target, { body }))
    // 409: another process was faster. On a renewal the conflict need not mean that it took the lease.
    if (response.status === 409 && !isRenewal) return false
    if (response.status !== 200 && response.status !== 201) throw unexpected(method, target, response)
    observed = { version: response.body.metadata.resourceVersion ?? '', expiresAt: time.now() + spec.leaseDurationSeconds * 1000 }
    return 'renewed'
  }

  /** Bounds a request in time, so that a server that hangs does not keep a leader beyond its deadline. */
  async function within<T>(work: Promise<T>): Promise<T> {
    const timer = new AbortController()
    const maxMs = isLeading ? Math.min(renewDeadlineMs / 2, untilDeadlineMs()) : renewDeadlineMs / 2
    const timeout = time.pause(maxMs, timer.signal).then(() => {
      throw new Unavailable('resources', new Error('the API server did not respond in time'))
    })
    try {
      return await Promise.race([work, timeout])
    } finally {
      timeout.catch(() => {})
      timer.abort()
    }
  }

  async function release(): Promise<void> {
    const response = await within(client.request<Lease>('GET', path))
    if (response.status === 404) return
    if (response.status !== 200) throw unexpected('GET', path, response)
    if (response.body.spec.holderIdentity !== identity) return
    const { metadata, spec } = response.body
    const body = {
      apiVersion: 'coordination.k8s.io/v1',
      kind: 'Lease',
      metadata,
      spec: { ...spec, holderIdentity: '', leaseDurationSeconds: 1, renewTime: microTime(Date.now()) },
    }
    const released = await within(client.request<Lease>('PUT', path, { body }))
    if (released.status !== 200) throw unexpected('PUT', path, released)
  }

  return {
    firstTry: first.promise,
    isLeading: () => isLeading && untilDeadlineMs() > 0,
    lastError: () => lastError,
    async resign() {
      if (stopping.signal.aborted) return
      stopping.abort()
      await running
      isLeading = false
      if (!mayHold) return
      await release().catch((error: unknown) =>
        log.warn(
          { event: 'lease_release_failed', lease: `${namespace}/${name}`, err: error },
          'lease release failed; the lease expires by itself',
        ),
      )
    },
  }
}
