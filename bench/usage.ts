/**
 * `node bench/usage.ts [--records n] [--plans n] [--mongodb url]`: usage records in a large store: their write with the charge, a page of the list in the middle, the records of a
 * day, the export as NDJSON and CSV, and `verify`. Over SQLite, or over the MongoDB server of the address, in a database of its own.
 */
import { randomUUID } from 'node:crypto'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { MongoClient } from 'mongodb'
import { openStore, type Store } from '../src/backends/store/store.ts'
import { exportUsage, FORMATS } from '../src/maintenance/usage-export.ts'
import { listUsage } from '../src/tasks/list-usage.ts'
import { verifyStore } from '../src/verify/verify.ts'
import { admit, plan, T0, taskId } from '../test/contracts/store/acme.ts'
import { median } from './statistics.ts'
import { markdown } from './table.ts'

const { values } = parseArgs({ options: { records: { type: 'string', default: '1000000' }, plans: { type: 'string', default: '20' }, mongodb: { type: 'string' } } })
const [records, plans] = [Number(values.records), Number(values.plans)]
/** Requests of a plan that are open at once. */
const CLIENTS = 32
/** Time of the records between two of a plan: 30 days of them. */
const STEP_MS = (30 * 24 * 3_600_000) / (records / plans)
const END = T0 + 30 * 24 * 3_600_000

const folder = mkdtempSync(join(tmpdir(), 'tollgate-usage-'))
const name = `usage-${randomUUID()}`
const file = join(folder, 'tollgate.db')
const store = await openStore(values.mongodb === undefined ? `sqlite:${file}` : `${values.mongodb}/${name}`, { threads: true, isSole: values.mongodb === undefined, recordsUsage: true })
const rows: string[][] = []

try {
  await timed('write, with the charges', async () => {
    await Promise.all(Array.from({ length: plans }, (_, n) => chargeAll(store, n)))
  }, (ms) => `${Math.round((records / ms) * 1000).toLocaleString('en')} records/s`)
  if (values.mongodb === undefined) rows.push(['size of the file', `${Math.round(statSync(file).size / 1e6)} MB`, `${Math.round(statSync(file).size / records)} bytes a record, with its indexes`])
  const pages: number[] = []
  for (let n = 0; n < 200; n++) {
    const since = new Date(T0 + n * 3_600_000).toISOString()
    const start = performance.now()
    await listUsage(store, idOf(n % plans), { limit: 100, since }, END)
    pages.push(performance.now() - start)
  }
  rows.push(['page of 100, from an hour', `${median(pages).toFixed(2)} ms`, `longest of 200: ${Math.max(...pages).toFixed(1)} ms`])
  for (const format of FORMATS)
    await timed(`export as ${format}`, async () => {
      let bytes = 0
      for await (const part of exportUsage(store, { tenant: null, range: { since: 0, until: Infinity }, format })) bytes += part.length
      return `${Math.round(bytes / 1e6)} MB`
    }, (ms, size) => `${Math.round((records / ms) * 1000).toLocaleString('en')} records/s, ${size}`)
  await timed('export of a day', async () => {
    let lines = 0
    for await (const part of exportUsage(store, { tenant: null, range: { since: T0 + 10 * 86_400_000, until: T0 + 11 * 86_400_000 }, format: 'ndjson' })) lines += part.split('\n').length - 1
    return `${lines} records`
  }, (_ms, found) => found)
  await timed('verify', async () => {
    const { checked, violations } = await verifyStore(store, { now: await store.clock() })
    if (violations.length > 0 || checked.charges !== records) throw new Error(`${checked.charges} of ${records}: ${violations.join('; ')}`)
    return `${checked.charges} charges, 0 violations`
  }, (_ms, found) => found)
  process.stdout.write(`${markdown({ title: `${records.toLocaleString('en')} usage records of ${plans} plans, ${values.mongodb === undefined ? 'SQLite' : 'MongoDB'}`, head: ['', 'time', ''], rows })}\n`)
} finally {
  await store.close()
  rmSync(folder, { recursive: true })
  if (values.mongodb !== undefined) {
    const client = await new MongoClient(values.mongodb).connect()
    await client.db(name).dropDatabase()
    await client.close()
  }
}

function idOf(n: number): string {
  return `acme/code-${n}`
}

/** As many clients as may be open charge one request after the other. */
async function chargeAll(store: Store, n: number): Promise<void> {
  const id = idOf(n)
  await store.change(id, plan({}, { weeklyTokens: 1e15, sessionTokens: 1e15 }), T0)
  let next = 0
  const client = async (): Promise<void> => {
    for (let one = next++; one < records / plans; one = next++) {
      const at = T0 + Math.floor(one * STEP_MS)
      const request = taskId(one, T0 + n)
      await store.change(id, admit(request, 300), at)
      await store.change(id, { op: 'settle', id: request, usage: { input: 1800, cachedInput: 1200, output: 250 }, estimated: false }, at)
    }
  }
  await Promise.all(Array.from({ length: CLIENTS }, client))
}

async function timed<T>(what: string, work: () => Promise<T>, told: (ms: number, found: T) => string): Promise<void> {
  const start = performance.now()
  const found = await work()
  const ms = performance.now() - start
  rows.push([what, `${(ms / 1000).toFixed(1)} s`, told(ms, found)])
}
