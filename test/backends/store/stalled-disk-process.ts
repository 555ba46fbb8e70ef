/** A process with a store on a disk that the test freezes. It runs the steps that it receives, and reports how long its event loop stood still. */
import { appendFileSync, rmSync } from 'node:fs'
import { Unwritable } from '../../../src/domain/errors.ts'
import { openStore, type Store } from '../../../src/backends/store/store.ts'
import { admit, ID, keyVersion, plan, T0 } from '../../contracts/store/acme.ts'

export type Step = 'prepare' | 'full' | 'read' | 'flood' | 'resume' | 'stop'
/** Counts of outcomes, and what was read. */
export type Seen = { step: Step; [fact: string]: unknown }

const IDS = Array.from({ length: 20 }, (_, i) => `${ID}-${i}`)
const FLOOD = 20_001
const store: Store = await openStore(`sqlite:${process.argv[2]}`, { threads: true, isSole: true })
/** Longest time between two ticks of 5 ms. */
let standstillMs = 0
let last = performance.now()
setInterval(() => {
  const now = performance.now()
  standstillMs = Math.max(standstillMs, now - last)
  last = now
}, 5)
const acknowledged: string[] = []
let count = 0

async function counted(work: Promise<unknown>[]): Promise<{ fulfilled: number; rejected: number; reasons: string[] }> {
  const outcomes = await Promise.allSettled(work)
  const reasons = new Set(outcomes.flatMap((one) => (one.status === 'rejected' ? [(one.reason as Error).name] : [])))
  return { fulfilled: outcomes.filter(({ status }) => status === 'fulfilled').length, rejected: outcomes.filter(({ status }) => status === 'rejected').length, reasons: [...reasons] }
}

function write(): Promise<unknown> {
  const instance = `i${++count}`
  return store.heartbeat(instance, 1).then(() => acknowledged.push(instance))
}

const steps: Record<Step, () => Promise<object>> = {
  prepare: async () => {
    await Promise.all(IDS.map((id) => store.change(id, plan(), T0)))
    await store.mintKey(keyVersion('k1', 0))
    for (let i = 0; i < 20; i++) await write()
    return { acknowledged: acknowledged.length }
  },
  /** An admission while the disk has no room, and the next one when it has. */
  full: async () => {
    const id = IDS[0] ?? ''
    const filler = `${process.argv[2]}-filler`
    for (const bytes of [1_000_000, 1]) {
      try {
        for (;;) appendFileSync(filler, Buffer.alloc(bytes))
      } catch {
        // There is no room for so many.
      }
    }
    const reason: unknown = await store.change(id, admit('full', 1), T0).catch((error: unknown) => error)
    rmSync(filler)
    const { outcome } = await store.change<'admit'>(id, admit('freed', 1), T0)
    return { isUnwritable: reason instanceof Unwritable, cause: String((reason as Error).cause), outcome }
  },
  read: async () => ({
    subscription: (await store.subscription(IDS[0] ?? ''))?.id,
    key: (await store.findKey(keyVersion('k1', 0).hash))?.id,
    listed: (await store.keysAlive('', 10)).length,
    subscriptions: (await store.subscriptionsWith('plan', '', 100)).length,
  }),
  /** Writes that the disk does not take; their callers have an answer in time. */
  flood: async () => {
    const before = process.memoryUsage().rss
    const outcomes = await counted([...IDS.map((id, i) => store.change(id, admit(`r${i}`, 1), T0)), ...Array.from({ length: FLOOD }, write)])
    return { ...outcomes, grownMb: (process.memoryUsage().rss - before) / 1e6 }
  },
  /** Writes again until the disk takes one. */
  resume: async () => {
    for (let attempts = 1; ; attempts++) {
      const outcome = await counted([write()])
      if (outcome.fulfilled === 1) return { attempts }
      await new Promise((resolve) => setTimeout(resolve, 20))
    }
  },
  stop: async () => {
    await store.close()
    const reopened = await openStore(`sqlite:${process.argv[2]}`, { readOnly: true })
    const kept = new Set((await reopened.heartbeats()).map(({ instance }) => instance))
    const missing = acknowledged.filter((instance) => !kept.has(instance))
    const admitted = (await reopened.subscriptionsWith('reservations', '', 100)).length
    await reopened.close()
    return { missing, acknowledged: acknowledged.length, admitted }
  },
}

process.on('message', async (step: Step) => {
  standstillMs = 0
  last = performance.now()
  const facts = await steps[step]().catch((error: Error) => ({ error: error.stack }))
  process.send?.({ step, standstillMs, ...facts })
  if (step === 'stop') process.exit()
})
process.send?.({ step: 'opened' })
