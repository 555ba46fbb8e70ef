/**
 * Leader election by a Lease (coordination.k8s.io/v1), as client-go does it: a lease is over when it was not seen changing for its own duration by our own clock, so
 * that clocks need not agree.
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
  /** Ours alone, new at each start. */
  identity: string
  changed: (isLeading: boolean) => void
  log: { info(o: object, m: string): void; warn(o: object, m: string): void }
  random?: () => number
  time?: Time
  durationMs?: number
  /** A leader that could not renew for so long stops leading, before anybody else may begin. */
  renewDeadlineMs?: number
  retryMs?: number
}

/** A clock that only goes forward, also while the process stands still, and what wakes us by it. */
type Time = {
  now(): number
  /** Rejects when it is aborted. */
  pause(ms: number, signal: AbortSignal): Promise<unknown>
}

const MONOTONIC: Time = { now: () => performance.now(), pause: (ms, signal) => pause(ms, undefined, { signal }) }

export type Leader = {
  /** Resolves when the first try has ended, however it did. */
  tried: Promise<void>
  /** False as soon as the time to renew is over, even if the process stood still and `changed` was not called yet: ask before each act. */
  isLeading(): boolean
  /** What kept the last try from telling whose lease it is, or null. */
  trouble(): string | null
  /** Gives the lease up, so that another takes over at once, and tries no more. */
  resign(): Promise<void>
}

type Lease = Required<Pick<Wire<V1Lease>, 'metadata' | 'spec'>>

/** Begins to try. */
export function openLeader(options: LeaderOptions): Leader {
  const { client, namespace, name, identity, changed, log, random = Math.random, time = MONOTONIC, durationMs = 15_000, renewDeadlineMs = 10_000, retryMs = 2_000 } = options
  const collection = `/apis/coordination.k8s.io/v1/namespaces/${namespace}/leases`
  const path = `${collection}/${name}`
  const stopping = new AbortController()
  /** The lease as it was last seen to change, and until when nobody else may take it. */
  let observed: { version: string; overAt: number } | null = null
  let isLeading = false
  let trouble: string | null = null
  /** A write of ours may have made the lease ours, also one whose answer nobody waits for any more. */
  let mayHold = false
  let renewedAt = 0
  const first = Promise.withResolvers<void>()
  const running = run().finally(() => first.resolve())

  function become(next: boolean): void {
    if (isLeading === next) return
    isLeading = next
    log.info({ lease: `${namespace}/${name}`, identity }, next ? 'this process leads' : 'this process no longer leads')
    changed(next)
  }

  /** How long a leader may still go without renewing. */
  function leftMs(): number {
    return Math.max(0, renewedAt + renewDeadlineMs - time.now())
  }

  /** Until the next try: for a follower no later than the end of the lease that it sees. Chance keeps followers apart; so does that end, since each saw the lease change at a time of its own. */
  function waitMs(): number {
    if (isLeading) return Math.min(retryMs, leftMs())
    const untilOverMs = (observed?.overAt ?? 0) - time.now()
    return Math.min(retryMs * (1 + random() / 5), untilOverMs > 0 ? untilOverMs : Infinity)
  }

  async function run(): Promise<void> {
    while (!stopping.signal.aborted) {
      // Others may have led since, even if the lease is free again.
      if (leftMs() === 0) become(false)
      const startedAt = time.now()
      const tried = await tryOnce().catch(note)
      if (stopping.signal.aborted) return
      if (tried !== 'failed') trouble = null
      if (tried === 'renewed') renewedAt = startedAt
      // A renewal that took so long that its time is over is none.
      become((tried === 'renewed' || (tried === 'failed' && isLeading)) && leftMs() > 0)
      first.resolve()
      await time.pause(waitMs(), stopping.signal).catch(() => {})
    }
  }

  function note(error: unknown): 'failed' {
    const err = error instanceof Unavailable ? error.cause : error
    trouble = `lease: ${err instanceof Error ? err.message : 'it could not be read or written'}`
    log.warn({ err }, 'the lease could not be read or written')
    return 'failed'
  }

  /** Resolves to `renewed` if the lease is ours now. */
  async function tryOnce(): Promise<'renewed' | false> {
    const answer = await within(client.request<Lease>('GET', path))
    if (answer.status === 404) return write('POST', null)
    if (answer.status !== 200) throw unexpected('GET', path, answer)
    const lease = answer.body
    const { holderIdentity, leaseDurationSeconds } = lease.spec
    const version = lease.metadata.resourceVersion ?? ''
    if (observed?.version !== version) observed = { version, overAt: time.now() + (leaseDurationSeconds ?? durationMs / 1000) * 1000 }
    const isOver = !holderIdentity || time.now() >= observed.overAt
    if (holderIdentity !== identity && !isOver) return false
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
    const answer = await within(client.request<Lease>(method, target, { body }))
    // Somebody else was faster; but one who changed our own lease need not have taken it.
    if (answer.status === 409 && !isRenewal) return false
    if (answer.status !== 200 && answer.status !== 201) throw unexpected(method, target, answer)
    observed = { version: answer.body.metadata.resourceVersion ?? '', overAt: time.now() + spec.leaseDurationSeconds * 1000 }
    return 'renewed'
  }

  /** A server that hangs must not keep a leader beyond its deadline. */
  async function within<T>(work: Promise<T>): Promise<T> {
    const timer = new AbortController()
    const longestMs = isLeading ? Math.min(renewDeadlineMs / 2, leftMs()) : renewDeadlineMs / 2
    const late = time.pause(longestMs, timer.signal).then(() => {
      throw new Unavailable('resources', new Error('the API server does not answer in time'))
    })
    try {
      return await Promise.race([work, late])
    } finally {
      late.catch(() => {})
      timer.abort()
    }
  }

  async function release(): Promise<void> {
    const answer = await within(client.request<Lease>('GET', path))
    if (answer.status === 404) return
    if (answer.status !== 200) throw unexpected('GET', path, answer)
    if (answer.body.spec.holderIdentity !== identity) return
    const { metadata, spec } = answer.body
    const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec: { ...spec, holderIdentity: '', leaseDurationSeconds: 1, renewTime: microTime(Date.now()) } }
    const released = await within(client.request<Lease>('PUT', path, { body }))
    if (released.status !== 200) throw unexpected('PUT', path, released)
  }

  return {
    tried: first.promise,
    isLeading: () => isLeading && leftMs() > 0,
    trouble: () => trouble,
    async resign() {
      if (stopping.signal.aborted) return
      stopping.abort()
      await running
      isLeading = false
      if (!mayHold) return
      await release().catch((error: unknown) => log.warn({ err: error }, 'the lease was not given up; it ends by itself'))
    },
  }
}
