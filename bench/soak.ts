/**
 * `npm run soak`: an hour of light load of every kind on one embedded program, and what grows in it meanwhile, as Markdown on standard output (`bench/notes/process.md`, "An hour").
 * All load stays on loopback; all files are in a temporary folder.
 */
import { readdirSync, statSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as pause } from 'node:timers/promises'
import { json } from 'node:stream/consumers'
import { parseArgs } from 'node:util'
import { coding, media } from './manifests.ts'
import { startLoad, type Load } from './soak/load.ts'
import type { Reading } from './soak/probe.ts'
import { openSoakReceiver } from './soak/receiver.ts'
import { lastTwoThirds, slope, type Sample } from './soak/trend.ts'
import { openStage } from './stage.ts'
import { markdown, type Table } from './table.ts'

const USAGE = `npm run soak -- [options]
  --minutes n   length (60)
  --rate x      1 is about 22 requests a second (1)
  --every n     seconds between two samples (30)
`
/** Tenants with a Coding plan, and as many with a Media plan. */
const TENANTS = 4
/** Tasks and results are kept for ten minutes, so that what they take comes to an end of its growth in the first third. Events are kept for a day longer: their table is not judged. */
const KEPT_DAYS = '0.007'
/** The load stops for a sample until all requests are answered, at most this long. */
const QUIET_MS = 5_000
/** After the last answer, streams that were broken off still have to end. */
const SETTLE_MS = 500

const ENGINES = `\
engines:
  - { name: noop, type: noop }
  - { name: preview, type: preview }
  - { name: local-image, type: local-image }
routes:
  - { kind: image, engine: noop, price: { amount: "0.01", per: Job } }
  - { kind: music, engine: preview, price: { amount: "0.01", per: Second } }
  - { operation: upscale, engine: local-image, price: { amount: "0.01", per: Megapixel } }
`

/** What is sampled: its unit, and by how much of its median it may grow in the last two thirds (or by how many, if that is more). */
const SERIES = {
  'heap after collection, MB': { share: 0.05, count: 0 },
  'buffers, MB': { share: 0.1, count: 2 },
  'resident, MB': { share: 0.1, count: 0 },
  'handles': { share: 0.1, count: 3 },
  'file descriptors': { share: 0.1, count: 3 },
  'threads': { share: 0, count: 1 },
  'store without events, MB': { share: 0.1, count: 1 },
  'events, MB': { share: Infinity, count: 0 },
  'write-ahead log, MB': { share: 0.1, count: 8 },
  'files, MB': { share: 0.1, count: 5 },
} as const
type Name = keyof typeof SERIES

const { values } = parseArgs({ options: { minutes: { type: 'string', default: '60' }, rate: { type: 'string', default: '1' }, every: { type: 'string', default: '30' } } })
const [minutes, rate, everyMs] = [Number(values.minutes), Number(values.rate), Number(values.every) * 1000]
if (minutes > 0 && minutes <= 1440 && rate > 0 && rate <= 5 && everyMs >= 5000) await soak()
else {
  process.stderr.write(USAGE)
  process.exitCode = 1
}

async function soak(): Promise<void> {
  const stage = await openStage({ logLevel: 'warn', pin: false })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stage.close().then(() => process.exit(1)))
  const receiver = await openSoakReceiver()
  try {
    const model = await stage.model()
    const probe = join(stage.folder, 'probe')
    const { plans: coders, files } = coding(TENANTS, model.url, 'both')
    const studios = media(2 * TENANTS).plans.slice(2 * TENANTS)
    const plugin = join(import.meta.dirname, 'noop.ts')
    const settings = { UPSTREAMS: 'upstreams.yaml', ENGINES: 'engines.yaml', PLUGINS: plugin, EGRESS_ALLOW: '127.0.0.1', WEBHOOK_DELAYS_SECONDS: '0,1,2,4', TASK_DAYS: KEPT_DAYS, EVENT_DAYS: KEPT_DAYS, RESULT_DAYS: KEPT_DAYS, SOAK_PROBE: probe }
    const flags = ['--expose-gc', '--heapsnapshot-signal=SIGIO', '--import', join(import.meta.dirname, 'soak/probe.ts')]
    const [program] = await stage.distributed('soak', { declared: { plans: [...coders, ...studios], files: { ...files, 'engines.yaml': ENGINES } }, roles: ['all'], settings, flags })
    if (!program) throw new Error('there is no program')
    const keysFrom = (first: number) => Promise.all(Array.from({ length: TENANTS }, (_, n) => stage.key('soak', first + n)))
    const load = startLoad({ url: program.url, opsUrl: program.opsUrl, coding: await keysFrom(0), media: await keysFrom(TENANTS), receiver }, rate)
    const samples = await sampled(load, async () => {
      const reading = await read(probe)
      process.stderr.write(`${JSON.stringify(reading.handles)}\n`)
      return numbers(reading, program.rssBytes(), program.threads(), join(stage.folder, 'soak/data'))
    })
    await load.stop()
    const cpuMs = program.cpuMs()
    await program.stop()
    process.stdout.write(`${markdown(growth(samples))}\n${markdown(requests(load, cpuMs))}\n`)
    if (Object.entries(samples).some(([name, series]) => grows(name as Name, series))) process.exitCode = 1
  } finally {
    await receiver.close()
    await stage.close()
  }
}

type Series = Record<Name, Sample[]>

/** Takes a sample every `everyMs`, without load, until the time is over. */
async function sampled(load: Load, take: () => Promise<Record<Name, number>>): Promise<Series> {
  const series = Object.fromEntries(Object.keys(SERIES).map((name) => [name, []])) as unknown as Series
  const begunMs = performance.now()
  for (let n = 1; ; n++) {
    await pause(Math.max(0, begunMs + n * everyMs - performance.now()))
    await load.pause(QUIET_MS)
    await pause(SETTLE_MS)
    const at = (performance.now() - begunMs) / 60_000
    const taken = await take()
    load.resume()
    for (const [name, value] of Object.entries(taken)) series[name as Name].push({ minutes: at, value })
    process.stderr.write(`${at.toFixed(1)} min: ${Object.entries(taken).map(([name, value]) => `${name} ${value.toFixed(1)}`).join('; ')}; ${load.failures.length} failures\n`)
    if (at >= minutes) return series
  }
}

async function read(address: string): Promise<Reading> {
  return (await json(connect(address))) as Reading
}

function numbers({ heapBytes, externalBytes, handles, fileDescriptors }: Reading, rssBytes: number, threads: number, data: string): Record<Name, number> {
  const store = readdirSync(data).filter((file) => file.startsWith('tollgate.db'))
  const sizeOf = (files: string[]): number => files.reduce((sum, file) => sum + (statSync(file, { throwIfNoEntry: false })?.size ?? 0), 0) / 1e6
  const isLog = (file: string): boolean => file.endsWith('-wal') || file.endsWith('-shm')
  return {
    'heap after collection, MB': heapBytes / 1e6,
    'buffers, MB': externalBytes / 1e6,
    'resident, MB': rssBytes / 1e6,
    handles: Object.values(handles).reduce((sum, count) => sum + count, 0),
    'file descriptors': fileDescriptors,
    threads,
    'store without events, MB': bytesUsed(join(data, 'tollgate.db'), false) / 1e6,
    'events, MB': bytesUsed(join(data, 'tollgate.db'), true) / 1e6,
    'write-ahead log, MB': sizeOf(store.filter(isLog).map((file) => join(data, file))),
    'files, MB': sizeOf(readdirSync(join(data, 'files'), { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile()).map((entry) => join(entry.parentPath, entry.name))),
  }
}

/** Bytes of the pages that the events and their indexes use in a SQLite file, or those of everything else. Free pages are neither. */
function bytesUsed(file: string, isOfEvents: boolean): number {
  const database = new DatabaseSync(file, { readOnly: true })
  try {
    const sum = database.prepare("SELECT sum(pgsize) AS bytes FROM dbstat('main', 1) WHERE (name IN (SELECT name FROM sqlite_schema WHERE tbl_name = 'events')) = ?")
    return Number(sum.get(isOfEvents ? 1 : 0)?.['bytes'] ?? 0)
  } finally {
    database.close()
  }
}

/** Growth over the last two thirds, by the slope, and how much of it is allowed. */
function grown(name: Name, series: Sample[]): { median: number; perHour: number; growth: number; allowed: number } {
  const last = lastTwoThirds(series)
  const perMinute = slope(last)
  const sorted = last.map(({ value }) => value).sort((a, b) => a - b)
  const middle = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
  const { share, count } = SERIES[name]
  return { median: middle, perHour: perMinute * 60, growth: perMinute * ((last.at(-1)?.minutes ?? 0) - (last[0]?.minutes ?? 0)), allowed: Math.max(middle * share, count) }
}

function grows(name: Name, series: Sample[]): boolean {
  const { growth, allowed } = grown(name, series)
  return growth > allowed
}

function growth(samples: Series): Table {
  const rows = Object.entries(samples).map(([key, series]) => {
    const name = key as Name
    const { median, perHour, allowed } = grown(name, series)
    const all = series.map(({ value }) => value)
    return [name, all[0]?.toFixed(1) ?? '', Math.min(...all).toFixed(1), median.toFixed(1), Math.max(...all).toFixed(1), all.at(-1)?.toFixed(1) ?? '', perHour.toFixed(2), ...(allowed === Infinity ? ['', 'not judged'] : [allowed.toFixed(1), grows(name, series) ? '**grows**' : 'flat'])]
  })
  return { title: `${minutes} minutes of load: growth in one process`, head: ['', 'first', 'least', 'median of the last two thirds', 'most', 'last', 'slope, an hour', 'allowed', 'verdict'], rows, note: `${samples.threads.length} samples; Node ${process.versions.node}.` }
}

function requests({ counts, failures }: Load, cpuMs: number): Table {
  const rows = [...counts].map(([name, { done, failed, skipped }]) => [name, done, failed, skipped])
  return { title: 'Requests of the load', head: ['', 'done', 'failed', 'skipped'], rows, note: [`The program used ${(cpuMs / 1000).toFixed(0)} s of processor time.`, ...failures.map((failure) => `- ${failure}`)].join('\n') }
}
