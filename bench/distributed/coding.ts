/** Throughput of coding requests over MongoDB's protocol, by one gateway and by three, against the embedded side. */
import { setTimeout as pause } from 'node:timers/promises'
import { WORKLOADS } from '../coding-workloads.ts'
import type { Distributed } from '../distributed.ts'
import type { Choice } from '../stage.ts'
import { asFastAsPossible, type Target } from '../load.ts'
import { coding } from '../manifests.ts'
import type { Process } from '../processes.ts'
import { median, spread } from '../statistics.ts'
import type { Table } from '../table.ts'

const CONNECTIONS = 32
const WARM_MS = 2000
const SETTLE_MS = 300
const PLANS = [1, 20]
const MOST_PLANS = Math.max(...PLANS)
const ROLES = ['controller', 'gateway', 'gateway', 'gateway'] as const

type Side = { name: string; gateways: Process[]; keys: string[] }
type Measured = { perSecond: number; cpuUs: number }

/** JSON requests. All processes keep running. Each round measures every side once with one plan and once with twenty. */
export async function distributedCoding({ stage, start }: Distributed, { rounds, seconds }: Choice): Promise<Table> {
  const model = await stage.model()
  const embedded = await stage.tollgate('coding-embedded', model, { plans: MOST_PLANS })
  const embeddedKeys = await Promise.all(Array.from({ length: MOST_PLANS }, (_, n) => stage.key('coding-embedded', n)))
  const deployment = await start(coding(MOST_PLANS, model.url), ROLES, { UPSTREAMS: 'upstreams.yaml' })
  const gateways = deployment.of('gateway')
  const sides: Side[] = [
    { name: 'embedded, one process', gateways: [embedded], keys: embeddedKeys },
    { name: 'MongoDB, one gateway', gateways: gateways.slice(0, 1), keys: deployment.keys },
    { name: 'MongoDB, three gateways', gateways, keys: deployment.keys },
  ]
  const shapes = PLANS.flatMap((plans) => sides.map((side) => ({ plans, side, measured: [] as Measured[] })))
  for (const { plans, side } of shapes) await burst(side, plans, WARM_MS)
  for (let round = 0; round < rounds; round++) {
    for (const { plans, side, measured } of round % 2 === 0 ? shapes : shapes.toReversed()) measured.push(await burst(side, plans, seconds * 1000))
  }
  await deployment.stop()
  await embedded.stop()
  await model.stop()
  const rate = (measured: Measured[]) => measured.map(({ perSecond }) => perSecond)
  return {
    title: 'Coding requests with settlement on MongoDB, as fast as 32 clients can (JSON)',
    head: ['', 'plans', 'requests', 'by round', 'relative to the embedded side', 'CPU per request in gateways'],
    rows: shapes.map(({ plans, side: { name }, measured }) => {
      const base = shapes.find((shape) => shape.plans === plans)?.measured ?? []
      const ratio = median(rate(measured).map((perSecond, round) => perSecond / (base[round]?.perSecond ?? Number.NaN)))
      const cpuUs = median(measured.map((one) => one.cpuUs))
      return [name, plans, `${median(rate(measured)).toFixed(0)}/s`, spread(rate(measured)), ratio.toFixed(2), `${cpuUs.toFixed(0)} µs`]
    }),
  }
}

async function burst({ gateways, keys }: Side, plans: number, ms: number): Promise<Measured> {
  await pause(SETTLE_MS)
  const [{ bytes, expected }] = WORKLOADS
  const targets = Array.from({ length: CONNECTIONS }, (_, n): Target => ({ url: gateways[n % gateways.length]?.url ?? '', bytes: bytes(keys[n % plans] ?? '') }))
  const cpuMs = () => gateways.reduce((sum, gateway) => sum + gateway.cpuMs(), 0)
  const beforeMs = cpuMs()
  const { count, ms: tookMs } = await asFastAsPossible(targets, expected, { connections: CONNECTIONS, ms })
  return { perSecond: (count * 1000) / tookMs, cpuUs: ((cpuMs() - beforeMs) * 1000) / count }
}
