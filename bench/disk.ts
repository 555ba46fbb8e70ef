/**
 * `node bench/disk.ts [--against folder] [--seconds n] [--folder path]`: coding reservations over the SQLite store, in threads of its own and in the serving
 * thread, beside another checkout; in turns, in one process. Prints requests per second and the longest stand-still of the event loop.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { openStore, type Store, type StoreOptions } from '../src/backends/store/store.ts'
import { admit, plan, settle, T0 } from '../test/contracts/store/acme.ts'

const { values } = parseArgs({ options: { against: { type: 'string' }, seconds: { type: 'string', default: '3' }, rounds: { type: 'string', default: '3' }, folder: { type: 'string', default: tmpdir() } } })
const TENANTS = 20
const CLIENTS = 64

type Result = { requestsPerSecond: number; standstillMs: number }

async function measure(open: (url: string) => Promise<Store>): Promise<Result> {
  const folder = mkdtempSync(join(values.folder, 'tollgate-disk-'))
  const store = await open(`sqlite:${join(folder, 'tollgate.db')}`)
  const ids = Array.from({ length: TENANTS }, (_, i) => `acme/code-${i}`)
  await Promise.all(ids.map((id) => store.change(id, plan(), T0)))
  const until = performance.now() + Number(values.seconds) * 1000
  let [standstillMs, last, count] = [0, performance.now(), 0]
  const timer = setInterval(() => {
    standstillMs = Math.max(standstillMs, performance.now() - last - 1)
    last = performance.now()
  }, 1)
  await Promise.all(
    Array.from({ length: CLIENTS }, async (_, client) => {
      const id = ids[client % TENANTS] ?? ''
      for (let i = 0; performance.now() < until; i++) {
        await store.change(id, admit(`${client}-${i}`, 1), T0)
        await store.change(id, settle(`${client}-${i}`, 0), T0)
        count++
      }
    }),
  )
  clearInterval(timer)
  await store.close()
  rmSync(folder, { recursive: true })
  return { requestsPerSecond: count / Number(values.seconds), standstillMs }
}

const ours = (options: StoreOptions) => (url: string) => openStore(url, options)
const variants: [string, (url: string) => Promise<Store>][] = [
  ['threads, FULL', ours({ threads: true, isSole: true })],
  ['serving thread, FULL', ours({})],
]
if (values.against !== undefined) {
  const other = (await import(join(values.against, 'src/backends/store/store.ts'))) as { openStore: typeof openStore }
  variants.push(['the other checkout', (url) => other.openStore(url)])
}
process.stdout.write('| store | requests/s | longest stand-still |\n|---|---|---|\n')
for (let round = 0; round < Number(values.rounds); round++) {
  for (const [name, open] of variants) {
    const { requestsPerSecond, standstillMs } = await measure(open)
    process.stdout.write(`| ${name} | ${Math.round(requestsPerSecond)} | ${Math.round(standstillMs)} ms |\n`)
  }
}
