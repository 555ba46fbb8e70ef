/**
 * The store's clock, from which every process takes its time: measured against the store, and carried on by this machine's monotonic clock, so that setting the wall clock
 * changes nothing. A process whose wall clock is more than 5 s off, or that could not measure the store's clock to the second, is not ready and writes nothing to the store.
 */
import type { FastifyBaseLogger } from 'fastify'
import type { Registry } from 'prom-client'
import { ACCESS, type Store } from '../backends/store/store.ts'
import { Unavailable } from '../domain/errors.ts'
import { MAX_SKEW_MS } from '../domain/subscription/clock-healing.ts'
import { metersOf } from '../telemetry/metrics.ts'

const PERIOD_MS = 30_000
/** While the clocks differ too much. */
const PERIOD_OFF_MS = 1_000
/** Half of a round trip is the error of a measurement. */
const MAX_ROUND_TRIP_MS = 2_000

export type StoreClock = {
  /** The store's time, epoch milliseconds. */
  now(): number
  /** The same, for a change that was queued before; throws `Unavailable` while the clock is off. */
  writeTime(): number
  /** The readiness check: whether the wall clock is at most 5 s off, and the store has answered in time to know. */
  check(): { name: string; ok: boolean; detail: string }
  /** The store, whose writing verbs throw `Unavailable` while the clock is off. */
  guard(store: Store): Store
  close(): Promise<void>
}

export type StoreClockOptions = {
  log: FastifyBaseLogger
  registry: Registry
  /** This machine's wall clock, epoch milliseconds. */
  wall: () => number
  /** Milliseconds since any moment. */
  monotonic?: () => number
}

/**
 * Measures the store's clock, and again every 30 s, at once when a write was refused. Exports `tollgate_clock_skew_seconds`; logs once when the skew becomes too large or unknown, and once
 * when it is small again. Throws `Unavailable` when the store does not answer the first time; later the last measurement counts, unless the store took more than 2 s for it.
 */
export async function openStoreClock(
  store: Pick<Store, 'clock'>,
  { log, registry, wall, monotonic = () => performance.now() }: StoreClockOptions,
): Promise<StoreClock> {
  let measured = await measure()
  let reported: 'clock_skew' | 'store_clock_unknown' | null = null
  let measuring: Promise<void> | null = null
  let timer: NodeJS.Timeout | undefined
  let isClosed = false

  const now = () => Math.floor(monotonic() + measured.offsetMs)
  /** The wall clock minus the store's. */
  const skewMs = () => wall() - now()
  // A time that is seconds behind would take a good record for one that lies ahead, and heal it.
  const isUnknown = () => measured.roundTripMs > MAX_ROUND_TRIP_MS
  const isOff = () => isUnknown() || Math.abs(skewMs()) > MAX_SKEW_MS

  async function measure(): Promise<{ offsetMs: number; roundTripMs: number }> {
    const before = monotonic()
    const serverMs = await store.clock()
    const after = monotonic()
    return { offsetMs: serverMs - (before + after) / 2, roundTripMs: after - before }
  }

  async function remeasure(): Promise<void> {
    clearTimeout(timer)
    // The readiness check of the store reports that it is unavailable.
    const next = await measure().catch(() => null)
    if (next && (next.roundTripMs <= MAX_ROUND_TRIP_MS || isUnknown())) measured = next
    report()
    schedule()
  }

  function report(): void {
    const problem = isUnknown() ? 'store_clock_unknown' : isOff() ? 'clock_skew' : null
    if (problem === reported) return
    reported = problem
    const facts = { skewMs: -Math.round(skewMs()), roundTripMs: Math.round(measured.roundTripMs) }
    if (problem === 'clock_skew')
      log.error({ event: 'clock_skew', ...facts }, 'clock skew above 5 s, not ready: synchronize all machines by NTP')
    else if (problem === 'store_clock_unknown')
      log.error({ event: 'store_clock_unknown', ...facts }, 'store too slow to measure its clock, not ready')
    else log.info({ event: 'clock_skew_resolved', ...facts }, 'clock skew resolved')
  }

  function schedule(): void {
    if (!isClosed) timer = setTimeout(measureNow, isOff() ? PERIOD_OFF_MS : PERIOD_MS).unref()
  }

  function measureNow(): void {
    measuring ??= remeasure().finally(() => (measuring = null))
  }

  metersOf(registry).gaugedBy('tollgate_clock_skew_seconds', "The store's clock minus ours.", [], (gauge) => gauge.set(-skewMs() / 1000))
  report()
  schedule()

  type Verb = (...args: unknown[]) => Promise<unknown>
  const guarded =
    (write: Verb): Verb =>
    (...args) =>
      isOff() ? Promise.reject(refusal()) : write(...args)

  function refusal(): Unavailable {
    measureNow()
    return new Unavailable('store', new Error(detail()))
  }

  function detail(): string {
    if (isUnknown()) return `the store's clock is not known: the store took ${(measured.roundTripMs / 1000).toFixed(1)} s to tell it`
    return `the clock of this machine differs from the store's by ${(Math.abs(skewMs()) / 1000).toFixed(1)} s`
  }

  function writeTime(): number {
    if (isOff()) throw refusal()
    return now()
  }

  return {
    now,
    writeTime,
    check: () => ({ name: 'clock', ok: !isOff(), detail: detail() }),
    guard(store) {
      const { decideNow, ...verbs } = store
      const guards = Object.entries(verbs).map(([name, verb]) => [
        name,
        ACCESS[name as keyof Store] === 'read' ? verb : guarded(verb as Verb),
      ])
      return {
        ...(Object.fromEntries(guards) as typeof verbs),
        decideNow: (...args) => (isOff() ? null : decideNow(...args)),
      }
    },
    async close() {
      isClosed = true
      clearTimeout(timer)
      await measuring
    },
  }
}
