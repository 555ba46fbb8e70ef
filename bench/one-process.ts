/**
 * Processor time and memory of a coding request in Tollgate and in the bare pass-through, for a machine that is busy with other work: both run in this process, another checkout beside them,
 * and take turns of a fixed number of requests, after a fixed number to warm up. The model and the clients are threads, which do not count. At the end it counts the promises and files of a request.
 * `node bench/one-process.ts --workloads JSON --against ../other-checkout`
 */
import { openSync } from 'node:fs'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { Worker } from 'node:worker_threads'
import pino from 'pino'
import { Registry } from 'prom-client'
import type * as App from '../src/app.ts'
import type * as LogOutput from '../src/bootstrap/log-output.ts'
import type * as Backends from '../src/bootstrap/open-backends.ts'
import type * as Settings from '../src/config/config.ts'
import type { Burst } from './client-thread.ts'
import { WORKLOADS, type Workload } from './coding-workloads.ts'
import { openFloor } from './floor.ts'
import { countFiles, countPromises } from './counts.ts'
import { coding, tenant } from './manifests.ts'
import { watchHeap, type Heaped } from './heap.ts'
import { freePort } from '../test/servers/process.ts'
import { median } from './statistics.ts'
import { markdown } from './table.ts'

/** `all`: with the threads of the store, of the compiler and of the collector. */
type Taken = { main: number; all: number }
type Measured = Taken & Heaped
/** `root`: the checkout that it runs; null for the pass-through. */
type Side = { name: string; root: string | null; url: string; key: string; wire: Workload['upstream'] | null; taken: Measured[]; close(): Promise<void> }

const { values } = parseArgs({
  options: {
    workloads: { type: 'string', default: 'chat, JSON' },
    against: { type: 'string' },
    rounds: { type: 'string', default: '16' },
    requests: { type: 'string', default: '1000' },
    warm: { type: 'string', default: '60' },
    connections: { type: 'string', default: '32' },
  },
})
const count = Number(values.requests)
const kinds = WORKLOADS.filter(({ name }) => name.includes(values.workloads))
const folder = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))

const modelPort = await freePort()
const model = new Worker(join(import.meta.dirname, 'model.ts'), { env: { PORT: String(modelPort) } })
const client = new Worker(join(import.meta.dirname, 'client-thread.ts'))
const modelUrl = `http://127.0.0.1:${modelPort}`
await eventually(() => fetch(modelUrl).then(({ ok }) => ok))

const sides = [await passthrough(), await floor()]
for (const wire of new Set(kinds.map(({ upstream }) => upstream))) {
  sides.push(await tollgate('Tollgate', resolve(import.meta.dirname, '..'), wire))
  if (values.against !== undefined) sides.push(await tollgate('the other checkout', resolve(values.against), wire))
}
for (const kind of kinds) process.stdout.write(`${await measure(kind)}\n`)
for (const { close } of sides) await close()
await rm(folder, { recursive: true })
process.exit()

async function measure(kind: Workload): Promise<string> {
  const measured = sides.filter(({ wire }) => wire === null || wire === kind.upstream)
  for (const side of measured) side.taken = []
  for (let round = 0; round < Number(values.warm); round++) for (const side of measured) await burst(side, kind)
  for (let round = 0; round < Number(values.rounds); round++) {
    for (const side of round % 2 === 0 ? measured : measured.toReversed()) side.taken.push(await burst(side, kind))
  }
  const counted = new Map<Side, string[]>()
  for (const side of measured) counted.set(side, await counts(side, kind))
  const [bare] = measured
  const typical = ({ taken }: Side, of: keyof Measured): number => median(taken.map((one) => one[of]))
  const rows = measured.map((side) => [
    side.name,
    ...(['main', 'all'] as const).flatMap((threads) => [`${typical(side, threads).toFixed(0)} µs`, (typical(bare ?? side, threads) / typical(side, threads)).toFixed(2)]),
    ...(['allocated', 'promoted'] as const).map((of) => `${(typical(side, of) / 1024).toFixed(1)} KB`),
    ...(counted.get(side) ?? []),
  ])
  const title = `${kind.name}: a request over ${values.connections} connections, median of ${values.rounds} rounds of ${values.requests}`
  return markdown({ title, head: ['', 'main thread', 'ratio', 'all threads', 'ratio', 'heap', 'promoted', 'promises', 'files'], rows })
}

async function counts(side: Side, kind: Workload): Promise<string[]> {
  const promises = await countPromises(count, () => burst(side, kind))
  return [promises.toFixed(1), side.root === null ? '' : String(await countFiles(side.root, count, () => burst(side, kind)))]
}

async function burst({ url, key, wire }: Side, { name }: Workload): Promise<Measured> {
  const before = await cpuUs()
  const heap = watchHeap()
  client.postMessage({ url, key, workload: name, isCompared: wire === null, connections: Number(values.connections), count } satisfies Burst)
  await new Promise<void>((resolve, reject) => {
    client.once('error', reject)
    client.once('message', () => {
      client.off('error', reject)
      resolve()
    })
  })
  const { allocated, promoted } = heap.stop()
  const after = await cpuUs()
  return { main: (after.main - before.main) / count, all: (after.all - before.all) / count, allocated: allocated / count, promoted: promoted / count }
}

async function cpuUs(): Promise<Taken> {
  const sum = ({ user, system }: { user: number; system: number }): number => user + system
  const others = await Promise.all([model, client].map((thread) => thread.cpuUsage()))
  return { main: sum(process.threadCpuUsage()), all: sum(process.cpuUsage()) - others.reduce((total, usage) => total + sum(usage), 0) }
}

async function passthrough(): Promise<Side> {
  const port = await freePort()
  Object.assign(process.env, { MODEL_URL: modelUrl, PORT: String(port) })
  await import('./passthrough.ts')
  return { name: 'pass-through', root: null, url: `http://127.0.0.1:${port}`, key: '', wire: null, taken: [], close: async () => {} }
}

async function floor(): Promise<Side> {
  const port = await freePort()
  await openFloor(modelUrl, folder, port)
  return { name: 'the duties alone', root: null, url: `http://127.0.0.1:${port}`, key: '', wire: null, taken: [], close: async () => {} }
}

/** The program of a checkout, over embedded backends in a folder of its own; its log goes to a file. */
async function tollgate(name: string, root: string, wire: Workload['upstream']): Promise<Side> {
  const home = join(folder, `${name} ${wire}`)
  const { plans, files } = coding(1, modelUrl, wire)
  await mkdir(join(home, 'plans'), { recursive: true })
  await writeFile(join(home, 'plans/bench.yaml'), plans.join('---\n'))
  for (const [file, text] of Object.entries(files)) await writeFile(join(home, file), text)
  const { buildApp } = (await import(join(root, 'src/app.ts'))) as typeof App
  const { openBackends } = (await import(join(root, 'src/bootstrap/open-backends.ts'))) as typeof Backends
  const { openLogOutput } = (await import(join(root, 'src/bootstrap/log-output.ts'))) as typeof LogOutput
  const { readConfig } = (await import(join(root, 'src/config/config.ts'))) as typeof Settings
  const { config } = readConfig({ DATA_DIR: join(home, 'data'), PORT: '0', RESOURCES_URL: `files:${join(home, 'plans')}`, UPSTREAMS: join(home, 'upstreams.yaml') })
  const log = pino({ base: { role: 'all' }, timestamp: pino.stdTimeFunctions.isoTime }, openLogOutput(openSync(join(home, 'log'), 'w'), () => {}))
  const surroundings = { config, log, wall: Date.now, registry: new Registry() }
  const backends = await openBackends(surroundings, (_name, open) => open())
  const app = buildApp(surroundings, backends)
  const url = await app.listen({ host: '127.0.0.1', port: 0 })
  const key = await eventually(() => readFile(join(home, 'data/secrets', tenant(0), 'key/api-key'), 'utf8'))
  return { name, root, url, key, wire, taken: [], close: () => app.close().then(() => backends.close()) }
}

async function eventually<T>(attempt: () => Promise<T>): Promise<T> {
  for (;;) {
    const found = await attempt().catch(() => null)
    if (found) return found
    await pause(50)
  }
}
