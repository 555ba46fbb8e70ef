/**
 * A process with 512 MB, the clients of one tenant that do all at once what `docs/bounds.md` bounds, and a second tenant that goes on with its work: its
 * answers, and the most memory that the process had. `SECONDS` is how long it lasts (60). Needs root, for a control group. Beside the time until an
 * answer stands the work that the process did meanwhile, in all of its threads: on a machine with other work, time says little, and is not checked.
 */
import { readFileSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import t, { type Test } from 'tap'
import { openReceiver } from '../fakes/receiver.ts'
import { openService } from '../fakes/service.ts'
import { answer, at, post } from '../flows/calls.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { PROGRAM, REPOSITORY, start, whole, type Program } from '../flows/program.ts'
import { folderFor } from '../temporary-folder.ts'
import type { Given } from './attackers.ts'
import { openMemoryGroup } from './memory-group.ts'
import { openSteps } from './steps.ts'

const LASTS_MS = Number(process.env['SECONDS'] ?? 60) * 1000
const MEMORY_BYTES = 512_000_000
const BEFORE_MS = 10_000
const RECEIVERS = 10
/** Of the other tenant, of each kind of request. */
const CLIENTS = 2
/** Half of the answers to the other tenant come within this time before the attack, unless the machine has other work. */
const CALM_MS = 30
const FREE = { requestsPerMinute: 1_000_000 }
const WIDE = { sessionWindow: { tokens: 1e9, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e9 }, maxConcurrentRequests: 200 }

t.setTimeout(LASTS_MS + 300_000)

/** Milliseconds of a core that a process has used since its start, in steps of ten. */
function usedMs(pid: number): number {
  const [, user, system] = /\) (?:\S+ ){11}(\d+) (\d+) /.exec(readFileSync(`/proc/${pid}/stat`, 'utf8')) ?? []
  return (Number(user) + Number(system)) * 10
}

/**
 * The other tenant: coding requests, streams, and images with a webhook. What it measures is in milliseconds: until the whole answer, the work of the process
 * meanwhile (`work during …`), from the creation of an image to its completion, and from there to its webhook.
 */
async function openHonest(t: Test, program: Program) {
  const keys = whole(program.processes, program.env['DATA_DIR'] ?? '', 'demo')
  const { pid } = program.processes[0]!
  const [coding, media] = [await keys.key('demo-coding-key'), await keys.key('demo-media-key')]
  const receiver = await openReceiver(t)
  let ordered = 0
  let times: Record<string, number[]> = {}
  const refused = new Map<string, number>()
  let isOver = false
  const took = (kind: string, ms: number) => void (times[kind] ??= []).push(ms)
  receiver.always(({ rawBody }) => {
    const { data } = JSON.parse(String(rawBody)) as { data: { created_at: string; completed_at: string } }
    took('run', Date.parse(data.completed_at) - Date.parse(data.created_at))
    took('webhook', Date.now() - Date.parse(data.completed_at))
    return {}
  })
  const timed = async (kind: string, request: () => Promise<Response>) => {
    const [since, used] = [performance.now(), usedMs(pid)]
    const { status, body } = await answer(await request())
    took(kind, performance.now() - since)
    took(`work during ${kind}`, usedMs(pid) - used)
    const code = `${kind}: ${status} ${String(at(body, 'error', 'code'))}`
    if (status >= 300) refused.set(code, (refused.get(code) ?? 0) + 1)
  }
  const chat = { model: 'svc-code', max_tokens: 16, messages: [{ role: 'user', content: 'hello' }] }
  const work: Record<string, () => Promise<void>> = {
    coding: () => timed('coding', () => post(program, coding, '/v1/chat/completions', chat)),
    stream: () => timed('stream', () => post(program, coding, '/v1/chat/completions', { ...chat, stream: true })),
    async image() {
      await timed('image', () => post(program, media, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64', webhook_url: receiver.url }))
      ordered++
    },
  }
  const clients = Object.entries(work).flatMap(([kind, once]) =>
    Array.from({ length: CLIENTS }, async () => {
      while (!isOver) {
        await once()
        await pause(kind === 'image' ? 500 : 250)
      }
    }),
  )
  return {
    refused,
    /** What was measured since the last call. */
    take() {
      const taken = times
      times = {}
      return taken
    },
    async stop() {
      isOver = true
      await Promise.all(clients)
      await eventually('all webhooks', () => Promise.resolve(receiver.received.length >= ordered ? true : null))
    },
  }
}

function summary(times: Record<string, number[]>): string {
  const of = (all: number[]) => {
    const sorted = all.toSorted((a, b) => a - b)
    const part = (share: number) => Math.round(sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0)
    return `${all.length}, p50 ${part(0.5)} ms, p99 ${part(0.99)} ms, most ${part(1)} ms`
  }
  return Object.entries(times).map(([kind, all]) => `${kind}: ${of(all)}`).join('; ')
}

t.test('a process with 512 MB survives all attacks of one tenant at once, while another one is served', async (t) => {
  const { step, end } = openSteps(t)
  const folder = await folderFor(t)
  const group = await openMemoryGroup(MEMORY_BYTES)
  t.teardown(() => group.close())
  const hanging = await Promise.all(
    Array.from({ length: RECEIVERS }, () =>
      openService(t, {
        socket: () => {},
        answer({ url = '' }, response) {
          if (!url.includes('endless')) return
          response.writeHead(200, { 'content-type': 'image/png' })
          const timer = setInterval(() => response.write(Buffer.alloc(64 * 1024)), 50)
          response.on('close', () => clearInterval(timer))
        },
      }),
    ),
  )
  await declare(folder, 'demo')
  await writeFile(join(folder, 'plans', 'demo.yaml'), await readFile(join(REPOSITORY, 'plans/demo.yaml')))
  await declare(folder, 'hostile', codingPlan('coder', FREE, WIDE), apiKey('coding', 'coder'), mediaPlan('studio', FREE, { allowance: '100000.00', maxQueuedTasks: 10_000 }), apiKey('media', 'studio'))
  const routes = join(folder, 'routes.yaml')
  await writeFile(routes, JSON.stringify({ routes: [{ prefix: '/live', upstream: hanging[0]?.url, product: 'Coding', tokensPerRequest: 1, websocket: true }] }))
  const program = await start({ folder, argv: [...group.enter, process.execPath, PROGRAM], env: { PROXY_ROUTES: routes, IMAGE_URLS: 'fetch', EGRESS_ALLOW: '127.0.0.1/32' } })
  t.teardown(() => program.kill())
  const statusOf = async (name: string) => Number(new RegExp(`^${name}:\\s+(\\d+) kB$`, 'm').exec(await readFile(`/proc/${program.processes[0]?.pid}/status`, 'utf8'))?.[1]) * 1024

  const honest = await openHonest(t, program)
  await step('before', () => pause(BEFORE_MS))
  const before = honest.take()
  t.comment(`the other tenant before: ${summary(before)}; ${Math.round((await statusOf('VmRSS')) / 1e6)} MB resident`)
  const given: Given = { url: program.url, keys: { coding: await program.key('coding'), media: await program.key('media') }, hanging: hanging.map(({ url }) => url) }
  // In a thread of its own, so that what the attackers prepare delays no answer that is measured here.
  const attackers = new Worker(new URL('attackers.ts', import.meta.url), { workerData: given })
  const seen = new Promise<Map<number | 'cut', number>>((resolve, reject) => attackers.on('message', resolve).on('error', reject))
  await step('the attack', () => pause(LASTS_MS))
  const during = honest.take()
  attackers.postMessage('over')
  t.comment(`the hostile tenant got ${[...(await seen)].map(([status, count]) => `${count} × ${status}`).join(', ')}`)
  await step('its end', () => honest.stop())
  const peak = await statusOf('VmHWM')
  t.comment(`the other tenant meanwhile: ${summary(during)}`)
  t.same([...honest.refused], [], 'no request of the other tenant was refused')
  t.comment(`${Math.round(peak / 1e6)} MB resident at most`)
  t.equal(await group.killed(), 0, 'the kernel killed nothing')
  t.ok(peak < MEMORY_BYTES, String(peak))
  const isCalm = (before['coding'] ?? []).filter((ms) => ms < CALM_MS).length * 2 > (before['coding'] ?? []).length
  if (!isCalm) t.comment('the machine has other work: times are not checked')
  for (const kind of ['coding', 'stream', 'image']) t.ok(!isCalm || Math.max(...(during[kind] ?? [Infinity])) < 1000, `${kind}: every answer within a second`)
  t.equal((await fetch(`${program.opsUrl}/readyz`)).status, 200)
  end()
})
