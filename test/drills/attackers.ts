/** What clients of one hostile tenant do at once in the drill of an attack, as the thread of a worker. Each loops until the attack is over. */
import { setTimeout as pause } from 'node:timers/promises'
import { parentPort, workerData } from 'node:worker_threads'
import { WebSocket } from 'ws'
import { chunks, halfOpen, longString, PNG_BEGIN } from '../abuse/half-open.ts'
import { answer, at, get, post, type Caller } from '../flows/calls.ts'

const MIB = 1024 * 1024
/** Just above the minimum rate of a body. */
const TRICKLE = { bytes: 2 * 1024, everyMs: 1_000 }
/** How long a client keeps up what does not end by itself. */
const HOLD_MS = 15_000

export type Given = {
  /** Of the program. */
  url: string
  keys: { coding: string; media: string }
  /** Origins of services that take connections and never answer: receivers, hosts of images, a pass-through service. */
  hanging: string[]
}

type Target = Omit<Given, 'url'> & {
  program: Caller
  over: AbortSignal
  /** Counts an answer: its status, or `cut`. */
  seen(status: number | 'cut'): void
}

type Attack = { clients: number; once(target: Target, n: number): Promise<void> }

const held = (target: Pick<Target, 'over'>, ms = HOLD_MS) => pause(ms, undefined, { signal: target.over }).catch(() => {})

/** Sends a body as it is, and reads the answer. */
async function send({ program, over, seen }: Target, key: string, path: string, body: string): Promise<void> {
  const response = await fetch(`${program.url}${path}`, { method: 'POST', headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream' }, body, signal: over })
  await response.arrayBuffer()
  seen(response.status)
}

async function trickled(target: Target, path: string, key: string, headers: string[], parts: Iterable<Buffer>): Promise<void> {
  const client = halfOpen(target.program, path, key, headers, parts)
  let isClosed = false
  void client.closed.then(() => (isClosed = true))
  await client.sent
  for (const since = performance.now(); !isClosed && !target.over.aborted && performance.now() - since < HOLD_MS; await held(target, TRICKLE.everyMs)) client.write(Buffer.alloc(TRICKLE.bytes, 'x'))
  target.seen('cut')
  client.close()
  await held(target, 100)
}

const announced = (bytes: number) => [`Content-Length: ${bytes}`]
const CHUNKED = ['Transfer-Encoding: chunked']
const text = (content: unknown) => JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content }] })
const call = (name: string, given: object) => JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: given } })

const ATTACKS: Record<string, Attack> = {
  'half-open bodies': {
    clients: 24,
    once: (target, n) =>
      [
        () => trickled(target, '/v1/chat/completions', target.keys.coding, announced(31 * MIB), longString(4 * MIB)),
        () => trickled(target, '/v1/messages', target.keys.coding, announced(31 * MIB), longString(4 * MIB)),
        () => trickled(target, '/mcp', target.keys.media, announced(MIB), longString(MIB - 64 * 1024)),
        () => trickled(target, '/api/v1/operations', target.keys.media, announced(MIB), longString(MIB - 64 * 1024)),
      ][n % 4]!(),
  },
  'chunks of 16 bytes': { clients: 6, once: (target) => trickled(target, '/v1/responses', target.keys.coding, CHUNKED, chunks(40_000, 16)) },
  uploads: { clients: 6, once: (target) => trickled(target, '/api/v1/uploads', target.keys.media, announced(64 * MIB), [PNG_BEGIN]) },
  'a form through a pass-through route': { clients: 6, once: (target) => trickled(target, '/live/form', target.keys.coding, [...announced(9 * MIB), 'Content-Type: multipart/form-data; boundary=x'], [Buffer.alloc(4 * MIB)]) },
  'hostile JSON': {
    clients: 3,
    once: (target, n) => send(target, target.keys.coding, '/v1/chat/completions', [`${'['.repeat(5 * MIB)}`, `[${'1,'.repeat(4 * MIB)}1]`, `{"model":"svc-code","messages":[${'{"role":"user","content":"x"},'.repeat(40_000)}1]}`][n % 3]!),
  },
  'long ids': {
    clients: 2,
    once: (target, n) => send(target, target.keys.coding, '/v1/responses', JSON.stringify(n % 2 === 0 ? { model: 'svc-code', input: 'x', previous_response_id: `resp_${'x'.repeat(5 * MIB)}` } : { model: 'svc-code', input: [{ type: 'reasoning', id: 'rs_1', summary: [], encrypted_content: 'A'.repeat(5 * MIB) }] })),
  },
  MCP: { clients: 3, once: (target, n) => send(target, target.keys.media, '/mcp', n % 2 === 0 ? call('generate_image', { prompt: 'x'.repeat(MIB / 2) }) : JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' })) },
  'streams that nobody reads': {
    clients: 20,
    async once(target) {
      const body = Buffer.from(JSON.stringify({ model: 'svc-code', stream: true, max_tokens: 4000, messages: [{ role: 'user', content: 'long '.repeat(2_000) }] }))
      const client = halfOpen(target.program, '/v1/chat/completions', target.keys.coding, announced(body.length), [])
      client.pause()
      client.write(body)
      await Promise.race([client.closed, held(target)])
      client.close()
    },
  },
  'fetched images': { clients: 8, once: (target, n) => send(target, target.keys.coding, '/v1/chat/completions', text(Array.from({ length: 20 }, (_, i) => ({ type: 'image_url', image_url: { url: `${target.hanging[n % target.hanging.length]}/endless-${i}.png` } })))) },
  'messages of a WebSocket': {
    clients: 8,
    async once(target) {
      const socket = new WebSocket(`${target.program.url.replace('http', 'ws')}/live/x`, { headers: { authorization: `Bearer ${target.keys.coding}` } })
      const closed = new Promise<void>((resolve) => socket.on('close', () => resolve()).on('error', () => {}))
      socket.on('open', () => {
        socket.send(Buffer.alloc(4 * MIB), { fin: false })
        for (let pings = 0; pings < 5_000; pings++) socket.ping(Buffer.alloc(125))
      })
      await Promise.race([closed, held(target)])
      target.seen('cut')
      socket.terminate()
      await held(target, 100)
    },
  },
  'event streams that nobody reads': {
    clients: 24,
    async once({ program, keys, over, seen }) {
      const { body } = await get(program, keys.media, '/api/v1/generations?limit=1')
      const id = at(body, 'data', 0, 'id')
      if (typeof id !== 'string') return void (await held({ over }, 500))
      const response = await fetch(`${program.url}/api/v1/generations/${id}/events`, { headers: { authorization: `Bearer ${keys.media}` }, signal: over })
      seen(response.status)
      await held({ over })
      await response.body?.cancel()
    },
  },
  'tasks with receivers that hang': {
    clients: 2,
    async once(target, n) {
      const { program, keys, seen } = target
      const webhook_url = `${target.hanging[Math.floor(performance.now()) % target.hanging.length]}/hook-${n}`
      const made = await answer(await post(program, keys.media, '/api/v1/generations', { kind: 'image', prompt: 'x', size: '32x32', webhook_url }, target.over))
      seen(made.status)
      if (n === 1 && made.status === 202) seen((await answer(await post(program, keys.media, `/api/v1/generations/${String(at(made.body, 'id'))}/cancel`, {}, target.over))).status)
      await held(target, 50)
    },
  },
  replay: {
    clients: 2,
    async once({ program, keys, over, seen }) {
      const now = Date.now()
      const range = { since: new Date(now - 3_600_000).toISOString(), until: new Date(now + 60_000).toISOString() }
      seen((await answer(await post(program, keys.media, '/api/v1/deliveries/replay', range, over))).status)
      await held({ over }, 50)
    },
  },
  lists: { clients: 2, once: async ({ program, keys, seen }) => seen((await get(program, keys.media, '/api/v1/generations?limit=100')).status) },
}

/** Runs every attack until it is over. What fails is tried again. */
async function attack(target: Target): Promise<void> {
  const clients = Object.values(ATTACKS).flatMap(({ clients, once }) =>
    Array.from({ length: clients }, async (_, n) => {
      while (!target.over.aborted)
        await once(target, n).catch(async () => {
          target.seen('cut')
          await held(target, 100)
        })
    }),
  )
  await Promise.all(clients)
}

const { url, keys, hanging } = workerData as Given
const over = new AbortController()
const counts = new Map<number | 'cut', number>()
parentPort?.once('message', () => over.abort())
await attack({ program: { url }, keys, hanging, over: over.signal, seen: (status) => void counts.set(status, (counts.get(status) ?? 0) + 1) })
parentPort?.postMessage(counts)
