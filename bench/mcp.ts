/** Reads of a task over MCP against the same reads over REST: calls a second, and latency at a steady rate. */
import { asFastAsPossible, steadily, type Target } from './load.ts'
import { postBytes } from './requests.ts'
import type { Choice, Stage } from './stage.ts'
import { median, percentile, spread } from './statistics.ts'
import type { Table } from './table.ts'

/** A key has 6,000 reads a minute: together they have more than a process serves. */
const KEYS = 200
const CONNECTIONS = 16
const STEADY = { connections: 16, perSecond: 60, count: 180 }

const REVISION = '2026-07-28'

const MADE = { picture: { kind: 'image' }, film: { kind: 'video', duration_seconds: 1 } }

type Read = (key: string, id: string) => Buffer

const READS: Record<string, Read> = {
  REST: (key, id) => Buffer.from(`GET /api/v1/generations/${id} HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer ${key}\r\n\r\n`),
  'MCP 2026-07-28': (key, id) => {
    const _meta = { 'io.modelcontextprotocol/protocolVersion': REVISION, 'io.modelcontextprotocol/clientInfo': { name: 'bench', version: '1' }, 'io.modelcontextprotocol/clientCapabilities': {} }
    return callBytes(key, { name: 'get_task', arguments: { task_id: id }, _meta }, `mcp-protocol-version: ${REVISION}\r\nmcp-method: tools/call\r\nmcp-name: get_task\r\n`)
  },
  'MCP 2025-11-25': (key, id) => callBytes(key, { name: 'get_task', arguments: { task_id: id } }, 'mcp-protocol-version: 2025-11-25\r\n'),
}

function callBytes(key: string, params: object, headers: string): Buffer {
  const bytes = postBytes({ path: '/mcp', key, body: { jsonrpc: '2.0', id: 1, method: 'tools/call', params } }).toString()
  return Buffer.from(bytes.replace('content-type:', `accept: application/json, text/event-stream\r\n${headers}content-type:`))
}

/** The tasks are completed. Of a picture MCP reads the small file besides, and attaches it; of a film it has a link, as REST. */
export async function mcp(stage: Stage, { rounds, seconds }: Choice): Promise<Table> {
  const studio = await stage.studio('mcp', KEYS, 'cores')
  const keys = await Promise.all(Array.from({ length: KEYS }, (_, n) => stage.key('mcp', n)))
  const reads: { name: string; bytes: Buffer[] }[] = []
  for (const [kind, made] of Object.entries(MADE)) {
    const ids = await Promise.all(keys.map((key) => completed(studio.url, key, made)))
    for (const [name, read] of Object.entries(READS)) reads.push({ name: `${kind}: ${name}`, bytes: keys.map((key, n) => read(key, ids[n]!)) })
  }
  const rates = new Map<string, number[]>()
  const latencies = new Map<string, number[]>()
  const add = (map: Map<string, number[]>, name: string, value: number) => void map.set(name, [...(map.get(name) ?? []), value])
  const expected = { status: 200, end: '' }
  // The first round warms up and is not counted.
  for (let round = -1; round < rounds; round++) {
    for (const { name, bytes } of reads) {
      const targets: Target[] = bytes.map((one) => ({ url: studio.url, bytes: one }))
      const { count, ms } = await asFastAsPossible(targets, expected, { connections: CONNECTIONS, ms: seconds * 1000 })
      const taken = await steadily({ url: studio.url, bytes: bytes as [Buffer, ...Buffer[]] }, expected, STEADY)
      if (round < 0) continue
      add(rates, name, (count * 1000) / ms)
      add(latencies, name, percentile(taken.map((one) => one.ms), 0.5))
    }
  }
  await studio.stop()
  const restOf = (name: string) => `${name.split(':')[0]}: REST`
  return {
    title: `Reads of a task over REST and MCP (${CONNECTIONS} clients; latency at ${STEADY.perSecond} a second)`,
    head: ['', 'calls', 'of REST', 'by round', 'p50', 'added, p50'],
    rows: reads.map(({ name }) => {
      const [rest, ms] = [rates.get(restOf(name)) ?? [], latencies.get(restOf(name)) ?? []]
      const ratios = (rates.get(name) ?? []).map((rate, n) => rate / (rest[n] ?? Number.NaN))
      const added = (latencies.get(name) ?? []).map((one, n) => one - (ms[n] ?? Number.NaN))
      return [name, `${median(rates.get(name) ?? []).toFixed(0)}/s`, median(ratios).toFixed(2), spread(ratios, 2), `${median(latencies.get(name) ?? []).toFixed(2)} ms`, `${median(added).toFixed(2)} ms`]
    }),
  }
}

/** The id of a completed task. */
async function completed(url: string, key: string, made: object): Promise<string> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', prefer: 'wait=30' }
  const { id } = (await (await fetch(`${url}/api/v1/generations`, { method: 'POST', headers, body: JSON.stringify({ ...made, prompt: 'A lighthouse at dawn' }) })).json()) as { id: string }
  return id
}
