/** Latency that Tollgate adds to a request: at a steady rate that leaves every process mostly idle, and the slowest of a busy one. */
import { steadily } from './load.ts'
import { WORKLOADS } from './coding-workloads.ts'
import { chatBytes, PACED, STREAM_END, THINKING } from './requests.ts'
import type { Choice, Stage } from './stage.ts'
import { median, percentile } from './statistics.ts'
import type { Table } from './table.ts'

const CONNECTIONS = 16
const KINDS = [
  { name: 'JSON, whole answer', stream: false, mark: PACED, of: 'ms', perSecond: 200, count: 600 },
  { name: 'streamed, first byte', stream: true, mark: PACED, of: 'firstMs', perSecond: 50, count: 150 },
  { name: 'streamed, whole answer', stream: true, mark: PACED, of: 'ms', perSecond: 50, count: 150 },
  { name: 'streamed, first byte of a model that takes 20 ms to begin', stream: true, mark: THINKING, of: 'firstMs', perSecond: 50, count: 150 },
] as const

type Kind = (typeof KINDS)[number]
type Side = 'bare' | 'tollgate' | 'direct'
const SIDES: Side[] = ['direct', 'bare', 'tollgate']

/** Measures the model alone, the pass-through and Tollgate in turn. Reports the median over the rounds of each round's percentiles, so that one bad moment of the machine affects one round only. */
export async function latency(stage: Stage, { rounds }: { rounds: number }): Promise<Table> {
  const model = await stage.model()
  const processes = { direct: model, bare: await stage.passthrough(model), tollgate: await stage.tollgate('latency', model) }
  const key = await stage.key('latency')
  const taken = new Map<string, { firstMs: number; ms: number }[][]>()
  const nameOf = (side: Side, { stream, mark }: Pick<Kind, 'stream' | 'mark'>): string => `${side} ${stream} ${mark}`
  // The first round warms up and is not counted.
  for (let round = -1; round < rounds; round++) {
    for (const kind of [KINDS[0], KINDS[1], KINDS[3]]) {
      const { stream, mark, perSecond, count } = kind
      for (let n = 0; n < SIDES.length; n++) {
        const side = SIDES[(n + round + SIDES.length) % SIDES.length] ?? 'direct'
        const expected = { status: 200, end: stream ? STREAM_END : '}' }
        const some = await steadily({ url: processes[side].url, bytes: [chatBytes(key, { stream, mark })] }, expected, { connections: CONNECTIONS, perSecond, count })
        if (round >= 0) taken.set(nameOf(side, kind), [...(taken.get(nameOf(side, kind)) ?? []), some])
      }
    }
  }
  for (const process of Object.values(processes).toReversed()) await process.stop()
  return {
    title: 'Latency at a steady 200 JSON requests a second, 50 streams a second',
    head: ['milliseconds', 'model alone, p50 / p99', 'pass-through, p50 / p99', 'Tollgate, p50 / p99', 'added to the pass-through, p50', 'p99'],
    rows: KINDS.map((kind) => {
      const { name, of } = kind
      const at = (side: Side, share: number): number[] => (taken.get(nameOf(side, kind)) ?? []).map((some) => percentile(some.map((one) => one[of]), share))
      const both = (side: Side): string => `${median(at(side, 0.5)).toFixed(2)} / ${median(at(side, 0.99)).toFixed(2)}`
      const added = (share: number): string => median(at('tollgate', share).map((ms, round) => ms - (at('bare', share)[round] ?? Number.NaN))).toFixed(2)
      return [name, both('direct'), both('bare'), both('tollgate'), added(0.5), added(0.99)]
    }),
  }
}

const BUSY = [
  { name: 'chat, JSON', perSecond: 1500 },
  { name: 'chat, 20 tokens in bursts', perSecond: 1000 },
]
const BUSY_CONNECTIONS = 64
const BUSY_SECONDS = 6
const SHARES = [0.5, 0.99, 0.999]

/** The slowest requests of a steady rate that keeps a core a third busy, measured by turns. A round of each side warms up. */
export async function tail(stage: Stage, { rounds }: Choice): Promise<Table> {
  const model = await stage.model()
  const sides = { 'pass-through': await stage.passthrough(model), Tollgate: await stage.tollgate('tail', model, { wire: 'both' }) }
  const key = await stage.key('tail')
  const rows: string[][] = []
  for (const { name, perSecond } of BUSY) {
    const workload = WORKLOADS.find((one) => one.name === name)
    if (!workload) throw new Error(`there is no workload ${name}`)
    const taken: Record<string, number[][]> = { 'pass-through': [], Tollgate: [] }
    for (let round = -1; round < rounds; round++) {
      for (const [side, { url }] of round % 2 === 0 ? Object.entries(sides) : Object.entries(sides).toReversed()) {
        const some = await steadily({ url, bytes: [workload.bytes(key)] }, workload.expected, { connections: BUSY_CONNECTIONS, perSecond, count: perSecond * BUSY_SECONDS })
        if (round >= 0) taken[side]?.push(SHARES.map((share) => percentile(some.map(({ ms }) => ms), share)))
      }
    }
    for (const [side, all] of Object.entries(taken)) {
      const slowest = all.map((one) => one[2] ?? Number.NaN)
      rows.push([`${name}, ${perSecond}/s: ${side}`, ...SHARES.map((_, n) => median(all.map((one) => one[n] ?? Number.NaN)).toFixed(1)), slowest.map((ms) => ms.toFixed(0)).join(', ')])
    }
  }
  for (const process of [...Object.values(sides).toReversed(), model]) await process.stop()
  return { title: 'The slowest requests of a busy hour', head: ['milliseconds', 'p50', 'p99', 'p99.9', 'p99.9 by round'], rows }
}
