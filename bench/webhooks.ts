/** Webhook deliveries: of one tenant as fast as its receiver takes them, and of many tenants while half of the receivers hang. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { each, steadily } from './load.ts'
import { cpuMsByName } from './processes.ts'
import { postBytes } from './requests.ts'
import type { Stage } from './stage.ts'
import { median, percentile, spread } from './statistics.ts'
import type { Table } from './table.ts'
import { CONNECTIONS, SLOTS } from './tasks.ts'

const DELIVERIES = 1500
/** After which the receivers answer. */
const ANSWERS_MS = [100, 0]
const HOUR_MS = 3_600_000
const RECORDED_MS = 1000
/** Tenants with a receiver each, of which every second one hangs. */
const TENANTS = 20
const STEADY = { connections: 16, perSecond: 100, count: 1000 }

/** A running program with so many tenants; `cpuMs` is that of the process that delivers. */
export type Delivering = { url: string; keys: string[]; cpuMs(): number; stop(): Promise<void> }

type Open = (name: string, tenants: number) => Promise<Delivering>

export function webhooks(stage: Stage, { rounds }: { rounds: number }): Promise<Table[]> {
  return webhookTables('', rounds, async (name, tenants) => {
    const studio = await stage.studio(name, tenants, SLOTS)
    return { ...studio, keys: await Promise.all(Array.from({ length: tenants }, (_, n) => stage.key(name, n))) }
  })
}

/** `where` ends the titles. */
export async function webhookTables(where: string, rounds: number, open: Open): Promise<Table[]> {
  const rows = []
  for (const answerMs of ANSWERS_MS) rows.push(await replays(await open(`webhooks-${answerMs}`, 1), answerMs, rounds))
  return [
    { title: `Webhooks of one tenant (${DELIVERIES} due at once)${where}`, head: ['the receiver takes', 'delivered', 'by round', 'most at once', 'CPU per delivery', 'all processes and servers'], rows },
    await besideHanging(await open('webhooks-hanging', TENANTS), where),
  ]
}

/** A replay makes all deliveries due at once. The time runs from its request to the arrival of the last delivery; the first replay warms up. */
async function replays({ url, keys: [key = ''], cpuMs, stop }: Delivering, answerMs: number, rounds: number): Promise<Table['rows'][number]> {
  const receiver = await openReceiver(answerMs)
  await each(url, Array.from({ length: DELIVERIES }, () => creation(key, receiver.url)), { status: 202, end: '}' }, CONNECTIONS)
  await receiver.arrived(DELIVERIES)
  const rates: number[] = []
  const cpu: number[] = []
  const all: number[] = []
  for (let round = 0; round <= rounds; round++) {
    // The last attempts are recorded a moment after they were answered.
    await pause(RECORDED_MS)
    const [begunMs, cpuBefore, allBefore] = [performance.now(), cpuMs(), allCpuMs()]
    const due = await replay(url, key)
    if (due !== DELIVERIES) throw new Error(`${due} of ${DELIVERIES} deliveries became due`)
    await receiver.arrived((round + 2) * DELIVERIES)
    if (round > 0) rates.push((DELIVERIES * 1000) / (performance.now() - begunMs))
    await receiver.idle()
    if (round > 0) cpu.push((cpuMs() - cpuBefore) / DELIVERIES)
    if (round > 0) all.push((allCpuMs() - allBefore) / DELIVERIES)
  }
  await stop()
  await receiver.close()
  return [`${answerMs} ms`, `${median(rates).toFixed(0)}/s`, spread(rates), receiver.most(), `${median(cpu).toFixed(2)} ms`, `${median(all).toFixed(2)} ms`]
}

/** Of everything but this process, which is the receiver and the clients. */
function allCpuMs(): number {
  return [...cpuMsByName().values()].reduce((sum, ms) => sum + ms, 0)
}

/** Tasks of all tenants in turn at a steady rate; from the time of each event to the arrival of its first delivery. */
async function besideHanging({ url, keys, stop }: Delivering, where: string): Promise<Table> {
  const receivers = await Promise.all(Array.from({ length: TENANTS }, (_, n) => openReceiver(n % 2 === 0 ? 0 : Infinity)))
  const [first = Buffer.alloc(0), ...others] = receivers.map((receiver, n) => creation(keys[n] ?? '', receiver.url))
  await steadily({ url, bytes: [first, ...others] }, { status: 202, end: '}' }, STEADY)
  const answering = receivers.filter((_, n) => n % 2 === 0)
  await Promise.all(answering.map((receiver) => receiver.arrived(STEADY.count / TENANTS)))
  const ms = answering.flatMap((receiver) => receiver.sinceEventMs())
  const held = receivers.reduce((sum, receiver, n) => sum + (n % 2 === 0 ? 0 : receiver.most()), 0)
  await Promise.all(receivers.map((receiver) => receiver.close()))
  await stop()
  return {
    title: `Webhooks of ${TENANTS} tenants with a receiver each, of which half never answer (${STEADY.perSecond} tasks a second, ${STEADY.count} tasks)${where}`,
    head: ['', 'p50', 'p99', 'longest', 'attempts that hang'],
    rows: [['from the event to its arrival at the others', ...[0.5, 0.99, 1].map((share) => `${percentile(ms, share).toFixed(0)} ms`), held]],
  }
}

function creation(key: string, webhookUrl: string): Buffer {
  return postBytes({ path: '/api/v1/generations', key, body: { kind: 'image', prompt: 'A lighthouse at dawn', webhook_url: webhookUrl } })
}

/** Makes all deliveries due; returns their number. */
async function replay(url: string, key: string): Promise<number> {
  const range = { since: new Date(Date.now() - HOUR_MS).toISOString(), until: new Date(Date.now() + HOUR_MS).toISOString() }
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
  let cursor: string | null = null
  let count = 0
  do {
    const body = JSON.stringify({ ...range, status: 'delivered', ...(cursor === null ? {} : { cursor }) })
    const response = await fetch(`${url}/api/v1/deliveries/replay`, { method: 'POST', headers, body })
    const page = (await response.json()) as { count: number; next_cursor: string | null }
    if (response.status !== 202) throw new Error(`a replay was answered ${response.status}`)
    count += page.count
    cursor = page.next_cursor
  } while (cursor !== null)
  return count
}

/** A receiver that answers 204 after `answerMs`; with Infinity, never. */
async function openReceiver(answerMs: number) {
  let [arrivals, open, most] = [0, 0, 0]
  const sinceEventMs: number[] = []
  let changed = Promise.withResolvers<void>()
  const server = createServer((request, response) => {
    arrivals++
    most = Math.max(most, ++open)
    const [at, parts] = [Date.now(), [] as Buffer[]]
    request.on('data', (part: Buffer) => parts.push(part))
    request.once('end', () => sinceEventMs.push(at - Date.parse((JSON.parse(String(Buffer.concat(parts))) as { timestamp: string }).timestamp)))
    response.once('close', () => {
      open--
      changed.resolve()
    })
    changed.resolve()
    const end = () => response.writeHead(204).end()
    if (answerMs === 0) end()
    else if (answerMs < Infinity) setTimeout(end, answerMs)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  async function until(reached: () => boolean): Promise<void> {
    while (!reached()) {
      await changed.promise
      changed = Promise.withResolvers()
    }
  }
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`,
    arrived: (count: number) => until(() => arrivals >= count),
    idle: () => until(() => open === 0),
    most: () => most,
    sinceEventMs: () => sinceEventMs,
    close() {
      server.closeAllConnections()
      return new Promise((resolve) => server.close(resolve))
    },
  }
}
