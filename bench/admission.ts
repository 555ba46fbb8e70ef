/**
 * `node bench/admission.ts [--against folder] [--usage] [--rounds n] [--requests n]`: what a coding request pays for its admission and its settlement over the SQLite store in
 * threads, beside 1, 32 and 500 open reservations of its plan. Processor time of the thread that serves and of the whole process, and the time until a request may be
 * sent to its upstream; two checkouts in turns. With `--usage` also with usage records.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { openStore, type Store } from '../src/backends/store/store.ts'
import type { Decided } from '../src/backends/store/queued-command.ts'
import { admit, ID, plan, settle } from '../test/contracts/store/acme.ts'
import { median } from './statistics.ts'
import { markdown } from './table.ts'
import { threadUs } from './turns.ts'

const { values } = parseArgs({ options: { against: { type: 'string' }, usage: { type: 'boolean', default: false }, rounds: { type: 'string', default: '9' }, requests: { type: 'string', default: '4000' } } })
const OPEN = [1, 32, 500]
const CLIENTS = 32

type Measured = { mainUs: number; allUs: number; dispatchMs: number }
type Side = { name: string; store: Store; measured: Map<number, Measured[]> }

const folder = mkdtempSync(join(tmpdir(), 'tollgate-admission-'))
const sides: Side[] = [await side('Tollgate', openStore)]
if (values.usage) sides.push(await side('with usage records', openStore, true))
if (values.against !== undefined) {
  const other = (await import(join(values.against, 'src/backends/store/store.ts'))) as { openStore: typeof openStore }
  sides.push(await side('the other checkout', other.openStore))
}
for (let round = -2; round < Number(values.rounds); round++) {
  for (const open of OPEN) {
    for (const one of round % 2 === 0 ? sides : sides.toReversed()) {
      const measured = await measure(one.store, `${ID}-${open}`, open, `${round}`)
      if (round >= 0) one.measured.getOrInsertComputed(open, () => []).push(measured)
    }
  }
}
const rows = sides.flatMap(({ name, measured }) =>
  OPEN.map((open) => {
    const middle = (of: keyof Measured) => median((measured.get(open) ?? []).map((one) => one[of]))
    return [name, String(open), `${middle('mainUs').toFixed(1)} µs`, `${middle('allUs').toFixed(1)} µs`, `${middle('dispatchMs').toFixed(2)} ms`]
  }),
)
process.stdout.write(`${markdown({ title: `Admission and settlement, ${CLIENTS} clients`, head: ['', 'open reservations', 'thread that serves', 'all threads', 'until the dispatch'], rows })}\n`)
for (const { store } of sides) await store.close()
rmSync(folder, { recursive: true })

async function side(name: string, open: typeof openStore, recordsUsage = false): Promise<Side> {
  const store = await open(`sqlite:${join(folder, `${name}.db`)}`, { threads: true, isSole: true, recordsUsage })
  for (const count of OPEN) {
    const id = `${ID}-${count}`
    await store.change(id, plan(), Date.now())
    await Promise.all(Array.from({ length: Math.max(0, count - CLIENTS) }, (_, n) => store.change(id, admit(requestId(`open-${n}`), 1), Date.now())))
  }
  return { name, store, measured: new Map() }
}

/** As many clients as reservations are to be open, at most 32; each admits and settles one request after the other. */
async function measure(store: Store, id: string, open: number, round: string): Promise<Measured> {
  // One client alone waits for each commit.
  const requests = open === 1 ? Number(values.requests) / 8 : Number(values.requests)
  let [next, waitedMs] = [0, 0]
  const client = async () => {
    for (let n = next++; n < requests; n = next++) {
      const request = requestId(`${round}-${n}`)
      const sinceMs = performance.now()
      const { answer, durable } = await decided(store, id, admit(request, 1))
      waitedMs += performance.now() - sinceMs
      await durable
      if (answer.outcome !== 'admitted') throw new Error(`a request was answered ${answer.outcome}`)
      await settled(store, id, settle(request, 0))
    }
  }
  const [mainBefore, allBefore] = [threadUs(), allUs()]
  await Promise.all(Array.from({ length: Math.min(open, CLIENTS) }, client))
  return { mainUs: (threadUs() - mainBefore) / requests, allUs: (allUs() - allBefore) / requests, dispatchMs: waitedMs / requests }
}

/** As `plugins/metering` does. A checkout may have no such verb. */
async function decided(store: Store, id: string, command: ReturnType<typeof admit>): Promise<Decided<'admit'>> {
  const { promise: durable, resolve: stored, reject: lost } = Promise.withResolvers<void>()
  const answer = store.decideNow?.<'admit'>(id, command, Date.now(), { stored, lost }) ?? null
  return answer === null ? store.decide<'admit'>(id, command, Date.now()) : { answer, durable }
}

async function settled(store: Store, id: string, command: ReturnType<typeof settle>): Promise<void> {
  const { promise: durable, resolve: stored, reject: lost } = Promise.withResolvers<void>()
  const answer = store.decideNow?.<'settle'>(id, command, Date.now(), { stored, lost }) ?? null
  await (answer === null ? store.change<'settle'>(id, command, Date.now()) : durable)
}

/** As long as a UUID. */
function requestId(name: string): string {
  return name.padEnd(36, '-')
}

function allUs(): number {
  const { user, system } = process.cpuUsage()
  return user + system
}
