/** Requests per second of the Coding Plan API against the bare pass-through, and what each costs in processor time. */
import { setTimeout as pause } from 'node:timers/promises'
import { asFastAsPossible, type Expected, type Target } from './load.ts'
import type { Process } from './processes.ts'
import { chatBytes, STREAM_END } from './requests.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

export type Burst = { rounds: number; seconds: number }

const CONNECTIONS = 32
const WARM_MS = 2000
const SETTLE_MS = 300

type Workload = { name: string; bytes(key: string): Buffer; expected: Expected }
type Measured = { perSecond: number; cpuUs: number }

export const WORKLOADS: [Workload, Workload] = [
  { name: 'JSON', bytes: (key) => chatBytes(key, false), expected: { status: 200, end: '}' } },
  { name: 'streamed', bytes: (key) => chatBytes(key, true), expected: { status: 200, end: STREAM_END } },
]

/** Both sides run all the time; in each round each is asked once per kind of request, the one that begins changes from round to round. */
export async function coding(stage: Stage, { rounds, seconds }: Burst): Promise<Table> {
  const model = await stage.model()
  const sides = { bare: await stage.passthrough(model), tollgate: await stage.tollgate('coding', model) }
  const key = await stage.key('coding')
  const burst = async (side: Process, { bytes, expected }: Workload, ms: number): Promise<Measured> => {
    await pause(SETTLE_MS)
    const target: Target = { url: side.url, bytes: bytes(key) }
    const cpuBefore = side.cpuMs()
    const { count, ms: tookMs } = await asFastAsPossible([target], expected, { connections: CONNECTIONS, ms })
    return { perSecond: (count * 1000) / tookMs, cpuUs: ((side.cpuMs() - cpuBefore) * 1000) / count }
  }
  const results = WORKLOADS.map(() => ({ bare: [] as Measured[], tollgate: [] as Measured[] }))
  for (const workload of WORKLOADS) for (const side of Object.values(sides)) await burst(side, workload, WARM_MS)
  for (let round = 0; round < rounds; round++) {
    for (const [n, workload] of WORKLOADS.entries()) {
      const order = round % 2 === 0 ? (['bare', 'tollgate'] as const) : (['tollgate', 'bare'] as const)
      for (const side of order) results[n]?.[side].push(await burst(sides[side], workload, seconds * 1000))
    }
  }
  for (const process of [...Object.values(sides), model]) await process.stop()
  return {
    title: 'Coding requests, as fast as 32 clients can',
    head: ['', 'pass-through', 'Tollgate', 'ratio', 'ratio by round', 'CPU a request, pass-through', 'CPU a request, Tollgate', 'CPU ratio'],
    rows: WORKLOADS.map(({ name }, n) => row(name, results[n] ?? { bare: [], tollgate: [] })),
  }
}

function row(name: string, { bare, tollgate }: { bare: Measured[]; tollgate: Measured[] }): string[] {
  const ratios = tollgate.map(({ perSecond }, n) => perSecond / (bare[n]?.perSecond ?? Number.NaN))
  const cpuRatios = tollgate.map(({ cpuUs }, n) => (bare[n]?.cpuUs ?? Number.NaN) / cpuUs)
  const rate = (side: Measured[]): string => `${median(side.map(({ perSecond }) => perSecond)).toFixed(0)}/s`
  const cpu = (side: Measured[]): string => `${median(side.map(({ cpuUs }) => cpuUs)).toFixed(0)} µs`
  return [name, rate(bare), rate(tollgate), median(ratios).toFixed(2), spread(ratios, 2), cpu(bare), cpu(tollgate), median(cpuRatios).toFixed(2)]
}
