/** Throughput and processor time per request of the Coding Plan API, against the bare pass-through. */
import { setTimeout as pause } from 'node:timers/promises'
import { asFastAsPossible, type Expected, type Target } from './load.ts'
import type { Process } from './processes.ts'
import { chatBytes, RESPONSE_END, responsesBytes, STREAM_END } from './requests.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'

export type Burst = { rounds: number; seconds: number }

const CONNECTIONS = 32
const WARM_MS = 2000
const SETTLE_MS = 300

type Request = { bytes(key: string): Buffer; expected: Expected }
/** `translated`: the same for the model, from a client of the Responses wire. */
type Workload = Request & { name: string; translated: Request }
type Measured = { perSecond: number; cpuUs: number }
type Side = { name: string; kind: string; of: Request; process: Process; measured: Measured[] }

export const WORKLOADS: [Workload, Workload] = [
  {
    name: 'JSON',
    bytes: (key) => chatBytes(key, false),
    expected: { status: 200, end: '}' },
    translated: { bytes: (key) => responsesBytes(key, false), expected: { status: 200, end: '}' } },
  },
  {
    name: 'streamed',
    bytes: (key) => chatBytes(key, true),
    expected: { status: 200, end: STREAM_END },
    translated: { bytes: (key) => responsesBytes(key, true), expected: { status: 200, end: RESPONSE_END } },
  },
]

/** All programs keep running. Each round measures each program once per kind of request that it serves, in alternating order. */
export async function coding(stage: Stage, { rounds, seconds }: Burst): Promise<Table> {
  const model = await stage.model()
  const [bare, minimal, tollgate] = [await stage.passthrough(model), await stage.minimal(model), await stage.tollgate('coding', model)]
  const key = await stage.key('coding')
  const kinds = WORKLOADS.map((of) => {
    const side = (name: string, process: Process, request: Request = of): Side => ({ name, kind: of.name, of: request, process, measured: [] })
    return [
      side('pass-through', bare),
      ...(of.name === 'JSON' ? [side('hand-written minimum', minimal)] : []),
      side('Tollgate', tollgate),
      side('Tollgate, translated', tollgate, of.translated),
    ]
  })
  const burst = async ({ process, of: { bytes, expected } }: Side, ms: number): Promise<Measured> => {
    await pause(SETTLE_MS)
    const target: Target = { url: process.url, bytes: bytes(key) }
    const cpuBefore = process.cpuMs()
    const { count, ms: tookMs } = await asFastAsPossible([target], expected, { connections: CONNECTIONS, ms })
    return { perSecond: (count * 1000) / tookMs, cpuUs: ((process.cpuMs() - cpuBefore) * 1000) / count }
  }
  for (const side of kinds.flat()) await burst(side, WARM_MS)
  for (let round = 0; round < rounds; round++) {
    for (const sides of kinds) {
      const order = round % 2 === 0 ? sides : sides.toReversed()
      for (const side of order) side.measured.push(await burst(side, seconds * 1000))
    }
  }
  for (const process of [bare, minimal, tollgate, model]) await process.stop()
  return {
    title: 'Coding requests, as fast as 32 clients can',
    head: ['', 'requests', 'relative to the pass-through', 'by round', 'CPU per request', 'CPU ratio'],
    rows: kinds.flatMap((sides) => sides.map((side) => row(side, sides[0]?.measured ?? []))),
  }
}

function row({ name, kind, measured }: Side, bare: Measured[]): string[] {
  const ratios = measured.map(({ perSecond }, n) => perSecond / (bare[n]?.perSecond ?? Number.NaN))
  const cpuRatios = measured.map(({ cpuUs }, n) => (bare[n]?.cpuUs ?? Number.NaN) / cpuUs)
  const rate = median(measured.map(({ perSecond }) => perSecond)).toFixed(0)
  const cpu = median(measured.map(({ cpuUs }) => cpuUs)).toFixed(0)
  return [`${kind}, ${name}`, `${rate}/s`, median(ratios).toFixed(2), spread(ratios, 2), `${cpu} µs`, median(cpuRatios).toFixed(2)]
}
