/** Deliveries of one tenant to a receiver that takes 100 ms: a replay makes all of them due at once. */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { each } from './load.ts'
import { postBytes } from './requests.ts'
import type { Stage } from './stage.ts'
import { median, spread } from './statistics.ts'
import type { Table } from './table.ts'
import { CONNECTIONS, SLOTS } from './tasks.ts'

const DELIVERIES = 1500
const ANSWER_MS = 100
const HOUR_MS = 3_600_000

/** The time runs from the request for the replay to the arrival of the last delivery; the first replay warms up. */
export async function webhooks(stage: Stage, { rounds }: { rounds: number }): Promise<Table> {
  const receiver = await openReceiver()
  const studio = await stage.studio('webhooks', 1, SLOTS)
  const key = await stage.key('webhooks')
  const create = postBytes({ path: '/api/v1/generations', key, body: { kind: 'image', prompt: 'A lighthouse at dawn', webhook_url: receiver.url } })
  await each(studio.url, Array.from({ length: DELIVERIES }, () => create), { status: 202, end: '}' }, CONNECTIONS)
  await receiver.arrived(DELIVERIES)
  const rates: number[] = []
  for (let round = 0; round <= rounds; round++) {
    const begunMs = performance.now()
    const due = await replay(studio.url, key)
    if (due !== DELIVERIES) throw new Error(`${due} of ${DELIVERIES} deliveries became due`)
    await receiver.arrived((round + 2) * DELIVERIES)
    if (round > 0) rates.push((DELIVERIES * 1000) / (performance.now() - begunMs))
    await receiver.idle()
  }
  await studio.stop()
  await receiver.close()
  return {
    title: `Webhooks of one tenant to a receiver that takes ${ANSWER_MS} ms (${DELIVERIES} due at once)`,
    head: ['delivered', 'by round', 'most at once'],
    rows: [[`${median(rates).toFixed(0)}/s`, spread(rates), receiver.most()]],
  }
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

/** A receiver that answers 204 after `ANSWER_MS`. */
async function openReceiver() {
  let [arrivals, open, most] = [0, 0, 0]
  let changed = Promise.withResolvers<void>()
  const server = createServer((request, response) => {
    arrivals++
    most = Math.max(most, ++open)
    request.resume()
    response.once('close', () => {
      open--
      changed.resolve()
    })
    changed.resolve()
    setTimeout(() => response.writeHead(204).end(), ANSWER_MS)
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
    close: () => new Promise((resolve) => server.close(resolve)),
  }
}
