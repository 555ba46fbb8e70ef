/**
 * The memory of a whole program with a small heap, while clients of one tenant hold open what every entry takes: per entry, what is resident grows
 * by little more than what is counted; with all of them at once it stays below 512 MB, and another tenant is served.
 */
import { readFile, writeFile } from 'node:fs/promises'
import type { IncomingMessage, ServerResponse } from 'node:http'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { WebSocket } from 'ws'
import { openService } from '../fakes/service.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { PROGRAM, REPOSITORY, start } from '../flows/program.ts'
import { chunks, FORM_BEGIN, halfOpen, longString, PNG_BEGIN } from './half-open.ts'

const MIB = 1024 * 1024
const BODY_MEMORY_MIB = 64
/** Half-open requests of each entry. */
const CLIENTS = 6
/** Heap that is not collected yet, copies of the kernel's chunks, and the modules that an entry loads. */
const SLACK = 96 * MIB

/** By the path that the service sees: called when a request has arrived there, or an image has been sent by half. */
const arrivals = new Map<string, () => void>()

/** The service behind the pass-through route, and the host of images: it reads no body, and answers with half of an image in chunks of 16 bytes, or not at all. */
function stall({ url = '' }: IncomingMessage, response: ServerResponse): void {
  const arrived = () => arrivals.get(url)?.()
  if (!url.startsWith('/image')) return arrived()
  response.writeHead(200, { 'content-type': 'image/png' }).flushHeaders()
  for (const part of chunks(40_000, 16)) response.socket?.write(part)
  response.socket?.write('', arrived)
}

/** A path of the service, and when a request for it has arrived. */
function expected(name: string): { path: string; arrival: Promise<void> } {
  const path = `/${name}-${arrivals.size}`
  return { path, arrival: new Promise((resolve) => arrivals.set(path, resolve)) }
}

async function openTarget(t: Test) {
  const service = await openService(t, { socket: () => {}, answer: stall })
  const folder = t.testdir({ plans: {} })
  await writeFile(join(folder, 'plans', 'demo.yaml'), await readFile(join(REPOSITORY, 'plans/demo.yaml')))
  await declare(folder, 'hostile', codingPlan('coder', { requestsPerMinute: 100_000 }, { maxConcurrentRequests: 200 }), apiKey('coding', 'coder'), mediaPlan('studio', { requestsPerMinute: 100_000 }), apiKey('media', 'studio'))
  const routes = join(folder, 'routes.yaml')
  await writeFile(routes, JSON.stringify({ routes: [{ prefix: '/live', upstream: service.url, product: 'Coding', tokensPerRequest: 1, websocket: true }] }))
  const argv: [string, ...string[]] = [process.execPath, '--max-old-space-size=192', PROGRAM]
  const program = await start({ folder, argv, env: { BODY_MEMORY_MIB: String(BODY_MEMORY_MIB), PROXY_ROUTES: routes, IMAGE_URLS: 'fetch', EGRESS_ALLOW: '127.0.0.1/32' } })
  t.teardown(() => program.kill())
  const metric = async (name: string) => Number(new RegExp(`^${name}(?:\\{[^}]*\\})? ([\\d.e+]+)$`, 'm').exec(await (await fetch(`${program.opsUrl}/metrics`)).text())?.[1])
  const honestKey = await eventually('the key of the other tenant', () => readFile(join(folder, 'data/secrets/demo/demo-coding-key/api-key'), 'utf8').catch(() => null))
  return {
    program,
    service,
    keys: { coding: await program.key('coding'), media: await program.key('media') },
    counted: () => metric('tollgate_body_memory_bytes'),
    resident: () => metric('process_resident_memory_bytes'),
    /** A small request of the other tenant: its status, and the milliseconds that it took. */
    async honest() {
      const startedMs = performance.now()
      const answer = await fetch(`${program.url}/v1/chat/completions`, { method: 'POST', headers: { authorization: `Bearer ${honestKey}`, 'content-type': 'application/json' }, body: JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: 'hello' }], max_tokens: 16 }) })
      await answer.text()
      return { status: answer.status, ms: performance.now() - startedMs }
    },
  }
}

type Target = Awaited<ReturnType<typeof openTarget>>

const ENTRIES: Record<string, (target: Target) => { sent: Promise<unknown>; close(): void }> = {
  'a JSON body': (target) => halfOpen(target.program, '/v1/chat/completions', target.keys.coding, [`Content-Length: ${16 * MIB}`], longString(6 * MIB)),
  'a chunked body in chunks of 16 bytes': (target) => halfOpen(target.program, '/v1/responses', target.keys.coding, ['Transfer-Encoding: chunked'], chunks(40_000, 16)),
  'a body of Messages': (target) => halfOpen(target.program, '/v1/messages', target.keys.coding, ['Transfer-Encoding: chunked'], chunks(1_000, 4096)),
  'a body of count_tokens': (target) => halfOpen(target.program, '/v1/messages/count_tokens', target.keys.coding, [`Content-Length: ${16 * MIB}`], longString(6 * MIB)),
  'a call over MCP': (target) => halfOpen(target.program, '/mcp', target.keys.media, [`Content-Length: ${MIB}`], longString(MIB - 1024)),
  'a task with an inline source': (target) => halfOpen(target.program, '/api/v1/operations', target.keys.media, [`Content-Length: ${MIB}`], longString(MIB - 1024)),
  'an upload': (target) => halfOpen(target.program, '/api/v1/uploads', target.keys.media, [`Content-Length: ${32 * MIB}`], [PNG_BEGIN]),
  'a form through a pass-through route': (target) => {
    const { path, arrival } = expected('form')
    const { closed, close } = halfOpen(target.program, `/live${path}`, target.keys.coding, [`Content-Length: ${9 * MIB}`, 'Content-Type: multipart/form-data; boundary=x'], [FORM_BEGIN])
    return { sent: Promise.race([arrival, closed]), close }
  },
  'a fetched image': (target) => {
    const { path, arrival } = expected('image')
    const content = [{ type: 'image_url', image_url: { url: `${target.service.url}${path}` } }]
    const body = Buffer.from(JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content }] }))
    const { closed, close } = halfOpen(target.program, '/v1/chat/completions', target.keys.coding, [`Content-Length: ${body.length}`, 'Connection: close'], [body])
    return { sent: Promise.race([arrival, closed]), close }
  },
  'a message of a WebSocket': (target) => {
    const socket = new WebSocket(`${target.program.url.replace('http', 'ws')}/live/x`, { headers: { authorization: `Bearer ${target.keys.coding}` } })
    socket.on('error', () => {})
    const sent = new Promise<void>((resolve) => socket.on('close', () => resolve()).on('open', () => socket.send(Buffer.alloc(6 * MIB), { fin: false }, () => resolve())))
    return { sent, close: () => socket.terminate() }
  },
}

t.test('no entry holds more than is counted, and all of them at once leave a process below 512 MB that serves another tenant', async (t) => {
  const target = await openTarget(t)
  t.equal((await target.honest()).status, 200)
  const free = () => eventually('nothing is held', async () => ((await target.counted()) < MIB ? true : null))
  const attack = async (names: string[]) => {
    const clients = names.flatMap((name) => Array.from({ length: CLIENTS }, () => ENTRIES[name]!(target)))
    await Promise.all(clients.map(({ sent }) => sent))
    const answers = [await target.honest(), await target.honest(), await target.honest()]
    const [counted, resident] = [await target.counted(), await target.resident()]
    for (const client of clients) client.close()
    await free()
    return { counted, resident, statuses: answers.map(({ status }) => status), slowestMs: Math.round(Math.max(...answers.map(({ ms }) => ms))) }
  }
  for (const name of Object.keys(ENTRIES)) {
    const before = await target.resident()
    const { counted, resident, statuses, slowestMs } = await attack([name])
    t.comment(`${name}: ${Math.round(counted / MIB)} MiB counted, ${Math.round((resident - before) / MIB)} MiB more resident, the other tenant waited ${slowestMs} ms`)
    t.same(statuses, [200, 200, 200], name)
    t.ok(counted <= (BODY_MEMORY_MIB * MIB) / 2 + MIB, `${name}: no more than the share of a tenant, ${counted}`)
    t.ok(resident - before <= counted + SLACK, `${name}: ${resident - before} bytes for ${counted}`)
  }
  const { counted, resident, statuses, slowestMs } = await attack(Object.keys(ENTRIES))
  t.comment(`all at once: ${Math.round(counted / MIB)} MiB counted, ${Math.round(resident / MIB)} MiB resident, the other tenant waited ${slowestMs} ms`)
  t.same(statuses, [200, 200, 200])
  t.ok(resident < 512 * 1000 * 1000, String(resident))
  t.equal((await target.honest()).status, 200, 'it still serves afterwards')
})
