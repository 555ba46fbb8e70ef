/** One busy plan over MongoDB's protocol, served by one, two and three gateways, with and without leases: throughput, processor time, and how often its record is replaced. */
import { setTimeout as pause } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { WORKLOADS } from '../coding-workloads.ts'
import type { Deployment, Distributed } from '../distributed.ts'
import type { Choice } from '../stage.ts'
import { asFastAsPossible, steadily, type Target } from '../load.ts'
import { coding, tenant } from '../manifests.ts'
import type { Process } from '../processes.ts'
import { median, percentile, spread } from '../statistics.ts'
import type { Table } from '../table.ts'

/** For each gateway. */
const CONNECTIONS = 32
const WARM_MS = 3000
const SETTLE_MS = 2000
const GATEWAYS = [1, 2, 3]
const ROLES = ['controller', 'gateway', 'gateway', 'gateway'] as const
const STEADY = { perSecond: 100, count: 1000, connections: 64 }

/** `replaced`: replacements of the record. */
type Burst = { perSecond: number; cpuUs: number; replaced: number; conflicts: number }
type Steady = { replaced: number; cpuUs: number; ms: number[] }

const SIDES = { 'without leases': 'false', 'with leases': 'true' }

export async function onePlan({ stage, start, servers }: Distributed, { rounds, seconds }: Choice): Promise<Table[]> {
  const model = await stage.model()
  const mongodb = await new MongoClient(servers.mongodb).connect()
  const declared = coding(1, model.url)
  const sides: { name: string; deployment: Deployment }[] = []
  for (const [name, leases] of Object.entries(SIDES)) {
    sides.push({ name, deployment: await start(declared, ROLES, { UPSTREAMS: 'upstreams.yaml', PLAN_LEASES: leases }) })
  }
  const record = (deployment: Deployment) => mongodb.db(new URL(deployment.settings['STORE_URL'] ?? '').pathname.slice(1)).collection<{ _id: string; version: number }>('subscriptions')
  const version = async (deployment: Deployment) => (await record(deployment).findOne({ _id: `${tenant(0)}/plan` }))?.version ?? 0

  async function counted<T>(deployment: Deployment, gateways: Process[], work: () => Promise<T>): Promise<{ result: T; replaced: number; cpuMs: number; conflicts: number }> {
    await pause(SETTLE_MS)
    const cpu = () => gateways.reduce((sum, gateway) => sum + gateway.cpuMs(), 0)
    const conflicts = async () => (await Promise.all(gateways.map(conflictsOf))).reduce((sum, count) => sum + count, 0)
    const [versionBefore, cpuBefore, conflictsBefore] = [await version(deployment), cpu(), await conflicts()]
    const result = await work()
    await pause(SETTLE_MS)
    return { result, replaced: (await version(deployment)) - versionBefore, cpuMs: cpu() - cpuBefore, conflicts: (await conflicts()) - conflictsBefore }
  }

  async function burst(deployment: Deployment, count: number, ms: number): Promise<Burst> {
    const gateways = deployment.of('gateway').slice(0, count)
    const [{ bytes, expected }] = WORKLOADS
    const targets = gateways.map((gateway): Target => ({ url: gateway.url, bytes: bytes(deployment.keys[0] ?? '') }))
    const { result, replaced, cpuMs, conflicts } = await counted(deployment, gateways, () => asFastAsPossible(targets, expected, { connections: CONNECTIONS * count, ms }))
    return { perSecond: (result.count * 1000) / result.ms, cpuUs: (cpuMs * 1000) / result.count, replaced: replaced / result.count, conflicts: conflicts / result.count }
  }

  async function steady(deployment: Deployment): Promise<Steady> {
    const [gateway] = deployment.of('gateway')
    if (!gateway) throw new Error('there is no gateway')
    const [{ bytes, expected }] = WORKLOADS
    const { result, replaced, cpuMs } = await counted(deployment, [gateway], () => steadily({ url: gateway.url, bytes: [bytes(deployment.keys[0] ?? '')] }, expected, STEADY))
    return { replaced: replaced / STEADY.count, cpuUs: (cpuMs * 1000) / STEADY.count, ms: result.map(({ ms }) => ms) }
  }

  const shapes = sides.flatMap((side) => GATEWAYS.map((gateways) => ({ ...side, gateways, measured: [] as Burst[] })))
  for (const { deployment, gateways } of shapes) await burst(deployment, gateways, WARM_MS)
  for (let round = 0; round < rounds; round++) {
    for (const { deployment, gateways, measured } of round % 2 === 0 ? shapes : shapes.toReversed()) measured.push(await burst(deployment, gateways, seconds * 1000))
  }
  const slow: string[][] = []
  for (const { name, deployment } of sides) {
    const { replaced, cpuUs, ms } = await steady(deployment)
    slow.push([name, replaced.toFixed(2), `${cpuUs.toFixed(0)} µs`, `${percentile(ms, 0.5).toFixed(1)} / ${percentile(ms, 0.99).toFixed(1)}`])
  }
  for (const { deployment } of sides) await deployment.stop()
  await model.stop()
  await mongodb.close()
  const middle = (measured: Burst[], of: (one: Burst) => number) => median(measured.map(of))
  return [
    {
      title: `One plan on MongoDB, as fast as ${CONNECTIONS} clients of each gateway can (JSON)`,
      head: ['', 'gateways', 'requests', 'by round', 'CPU per request in gateways', 'replacements a request', 'conflicts a request'],
      rows: shapes.map(({ name, gateways, measured }) => {
        const perSecond = measured.map((one) => one.perSecond)
        return [name, gateways, `${median(perSecond).toFixed(0)}/s`, spread(perSecond), `${middle(measured, (one) => one.cpuUs).toFixed(0)} µs`, middle(measured, (one) => one.replaced).toFixed(3), middle(measured, (one) => one.conflicts).toFixed(3)]
      }),
    },
    { title: `One plan on MongoDB, one gateway, ${STEADY.perSecond} requests a second`, head: ['', 'replacements a request', 'CPU per request', 'milliseconds, p50 / p99'], rows: slow },
  ]
}

async function conflictsOf({ opsUrl }: Process): Promise<number> {
  const text = await (await fetch(`${opsUrl}/metrics`)).text()
  return Number(/^tollgate_store_conflicts_total\{[^}]*reason="conflict"[^}]*\} (\d+)/m.exec(text)?.[1] ?? 0)
}
