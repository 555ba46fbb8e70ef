/** What /readyz and /metrics say of the backends: whether each answers, and how far the store's clock is from ours. */
import type { FastifyInstance } from 'fastify'
import { Gauge, type Registry } from 'prom-client'
import type { Check } from './ops-listener.ts'

/** A server that does not answer in time is away, whatever it does later. */
const PATIENCE_MS = 2_000
/** Leases and windows are reckoned by the clocks of all processes. */
const MOST_SKEW_MS = 5_000
const SKEW_EVERY_MS = 30_000
/** What is written to see that the store takes it. */
const WRITTEN = 'readiness'
/** A file that is never there: asking for it proves that the place answers. */
const NO_FILE = 'readiness'

/** A check for each backend that the role has. Without the store nothing can be served; without the others something can. */
export function backendChecks(app: FastifyInstance): (() => Promise<Check> | Check)[] {
  const checks: (() => Promise<Check> | Check)[] = [
    async () => {
      const trouble = await troubleOf(() => app.store.clock())
      if (trouble !== null) return { name: 'store', ok: false, detail: trouble }
      // A full disk lets itself be read. Every process takes the same lease, which is nobody's.
      const unwritten = await troubleOf(() => app.store.takeLease(WRITTEN, WRITTEN, app.clock(), app.clock()))
      return unwritten === null ? { name: 'store', ok: true, detail: 'it answers' } : { name: 'store', ok: true, degraded: true, detail: `it can be read, and not written: ${unwritten}` }
    },
  ]
  if (app.hasDecorator('broker')) {
    checks.push(() => {
      const { ok, detail } = app.broker.health()
      return ok ? { name: 'broker', ok, detail } : { name: 'broker', ok: true, degraded: true, detail: `${detail}; work is found a moment later without it` }
    })
  }
  if (app.hasDecorator('files')) {
    checks.push(async () => {
      const trouble = await troubleOf(() => app.files.stat(NO_FILE))
      return trouble === null ? { name: 'files', ok: true, detail: 'they answer' } : { name: 'files', ok: true, degraded: true, detail: trouble }
    })
  }
  return checks
}

/** Why a backend does not answer, or null. */
async function troubleOf(ask: () => Promise<unknown>): Promise<string | null> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error('it does not answer')), PATIENCE_MS)
  })
  const trouble = await Promise.race([ask().then(() => null), late]).catch((error: Error) => (error.cause instanceof Error ? error.cause.message : error.message))
  clearTimeout(timer)
  return trouble
}

/** One gauge over all checks, asked at each scrape. */
export function checkMetric(checks: FastifyInstance['checks'], registry: Registry): void {
  new Gauge({
    name: 'tollgate_check_ok',
    help: 'What /readyz asks: 1 in order, 0 not.',
    labelNames: ['check'],
    registers: [registry],
    async collect() {
      for (const { name, ok, degraded } of await Promise.all(checks.map((check) => check()))) this.set({ check: name }, ok && !degraded ? 1 : 0)
    },
  })
}

/** Compares the store's clock with ours now and then; says so when they are far apart. Returns how to stop. */
export function watchSkew({ store, clock, log }: FastifyInstance, registry: Registry): () => void {
  const gauge = new Gauge({ name: 'tollgate_clock_skew_seconds', help: "The store's clock minus ours.", registers: [registry] })
  let wasFar = false
  const look = async (): Promise<void> => {
    const beforeMs = clock()
    const skewMs = (await store.clock()) - (beforeMs + clock()) / 2
    gauge.set(skewMs / 1000)
    const isFar = Math.abs(skewMs) > MOST_SKEW_MS
    if (isFar !== wasFar) log.warn({ skewMs: Math.round(skewMs) }, isFar ? "the store's clock and ours are more than 5 s apart: have all machines keep time (NTP)" : "the store's clock and ours agree again")
    wasFar = isFar
  }
  // A store that is away is told elsewhere.
  const quietly = (): void => void look().catch(() => {})
  quietly()
  const timer = setInterval(quietly, SKEW_EVERY_MS)
  return () => clearInterval(timer)
}
