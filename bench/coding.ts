/** Throughput and processor time per request of the Coding Plan API, against the bare pass-through. */
import { setTimeout as pause } from 'node:timers/promises'
import { asFastAsPossible, type Target } from './load.ts'
import type { Process } from './processes.ts'
import { WORKLOADS, type Workload } from './coding-workloads.ts'
import type { Choice, Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

const CONNECTIONS = 32
/** For each kind of request, so that a program has served some 60,000 before the first figure. */
const WARM_MS = 3000
const SETTLE_MS = 300

type Measured = { perSecond: number; cpuUs: number }
type Side = { name: string; kind: string; of: Pick<Workload, 'bytes' | 'expected'>; process: Process; key: string; measured: Measured[] }

/** All programs keep running. Each round measures each program once per kind of request that it serves, in alternating order. */
export async function coding(stage: Stage, { rounds, seconds, workloads, against }: Choice): Promise<Table> {
  const model = await stage.model()
  const bare = await stage.passthrough(model)
  const gateways: { name: string; upstream: Workload['upstream']; process: Process; key: string }[] = []
  for (const upstream of ['both', 'chat'] as const) {
    for (const [name, root] of [['Tollgate', null], ...(against === null ? [] : [['Tollgate of the other checkout', against] as const])] as const) {
      const home = `coding-${upstream}-${gateways.length}`
      gateways.push({ name, upstream, process: await stage.tollgate(home, model, { wire: upstream, root }), key: await stage.key(home) })
    }
  }
  const kinds = WORKLOADS.filter(({ name }) => name.includes(workloads)).map((of) => {
    const side = (name: string, process: Process, key = '', request: Side['of'] = of): Side => ({ name, kind: of.name, of: request, process, key, measured: [] })
    return [
      side('pass-through', bare, '', of.compared),
      ...gateways.filter(({ upstream }) => upstream === of.upstream).map(({ name, process, key }) => side(name, process, key)),
    ]
  })
  for (const side of kinds.flat()) await burst(side, WARM_MS)
  for (let round = 0; round < rounds; round++) {
    for (const sides of kinds) {
      const order = round % 2 === 0 ? sides : sides.toReversed()
      for (const side of order) side.measured.push(await burst(side, seconds * 1000))
    }
  }
  for (const process of [bare, ...gateways.map((gateway) => gateway.process), model]) await process.stop()
  return {
    title: 'Coding requests, as fast as 32 clients can',
    head: ['', 'requests', 'relative to the pass-through', 'by round', 'CPU per request', 'CPU ratio', 'by round'],
    rows: kinds.flatMap((sides) => sides.map((side) => row(side, sides[0]?.measured ?? []))),
  }
}

async function burst({ process, key, of: { bytes, expected } }: Side, ms: number): Promise<Measured> {
  await pause(SETTLE_MS)
  const target: Target = { url: process.url, bytes: bytes(key) }
  const cpuBefore = process.cpuMs()
  const { count, ms: tookMs } = await asFastAsPossible([target], expected, { connections: CONNECTIONS, ms })
  return { perSecond: (count * 1000) / tookMs, cpuUs: ((process.cpuMs() - cpuBefore) * 1000) / count }
}

function row({ name, kind, measured }: Side, bare: Measured[]): string[] {
  const ratios = measured.map(({ perSecond }, n) => perSecond / (bare[n]?.perSecond ?? Number.NaN))
  const cpuRatios = measured.map(({ cpuUs }, n) => (bare[n]?.cpuUs ?? Number.NaN) / cpuUs)
  const rate = median(measured.map(({ perSecond }) => perSecond)).toFixed(0)
  const cpu = median(measured.map(({ cpuUs }) => cpuUs)).toFixed(0)
  return [`${kind}: ${name}`, `${rate}/s`, median(ratios).toFixed(2), spread(ratios, 2), `${cpu} µs`, median(cpuRatios).toFixed(2), spread(cpuRatios, 2)]
}
