/**
 * A disk that is full, hangs, or is read-only, under load: how many requests reach the model server and are charged to nobody. Needs root, for a file system
 * of its own, which is mounted in a namespace of this process alone. `SECONDS` is how long each lasts (60).
 */
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process'
import { truncateSync, writeFileSync } from 'node:fs'
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import t from 'tap'
import { openUpstream, respond } from '../fakes/upstream.ts'
import { completion } from '../fakes/upstream-wire.ts'
import { answer, post, used } from '../flows/calls.ts'
import { eventually } from '../flows/eventually.ts'
import { apiKey, codingPlan, declare } from '../flows/manifests.ts'
import { start } from '../flows/program.ts'
import { openSteps } from './steps.ts'

const LASTS_MS = Number(process.env['SECONDS'] ?? 60) * 1000
const CLIENTS = 24
/** A fault of the disk is noticed by `/readyz` within this time. */
const NOTICED_MS = 10_000
const UPSTREAM_MS = 50
const WINDOWS = { sessionWindow: { tokens: 1e9, durationSeconds: 18_000 }, weeklyWindow: { tokens: 1e9 }, maxConcurrentRequests: 1000 }
const BODY = { model: 'svc-code', max_tokens: 50, messages: [{ role: 'user', content: 'Hello' }] }

const run = (command: string, ...args: string[]) => execFileSync(command, args, { stdio: ['ignore', 'pipe', 'pipe'] })
/** A process in a frozen file system cannot be killed: whatever happens here, the freeze ends. */
let thaw: ChildProcess | null = null

type Fault = { name: string; begin(disk: string): void; end(disk: string): void }
const FAULTS: Fault[] = [
  {
    name: 'a full disk',
    begin: (disk) => void spawnSync('dd', ['if=/dev/zero', `of=${disk}/filler`, 'bs=4096'], { stdio: 'ignore' }),
    end: (disk) => void run('rm', `${disk}/filler`),
  },
  {
    name: 'a disk that hangs',
    begin(disk) {
      thaw = spawn('sh', ['-c', `sleep ${LASTS_MS / 1000 + 60}; fsfreeze -u "${disk}"`], { stdio: 'ignore' })
      run('fsfreeze', '-f', disk)
    },
    end(disk) {
      run('fsfreeze', '-u', disk)
      thaw?.kill()
    },
  },
  {
    name: 'a read-only file',
    begin: (disk) => void run('chattr', '+i', `${disk}/store/tollgate.db`, `${disk}/store/tollgate.db-wal`),
    end: (disk) => void run('chattr', '-i', `${disk}/store/tollgate.db`, `${disk}/store/tollgate.db-wal`),
  },
]

if (process.env['OWN_NAMESPACE'] === undefined) {
  const own = spawnSync('unshare', ['-m', process.execPath, import.meta.filename], { stdio: 'inherit', env: { ...process.env, OWN_NAMESPACE: 'yes' } })
  process.exit(own.status ?? 1)
}

t.setTimeout(FAULTS.length * (LASTS_MS + 120_000))

for (const { name, begin, end } of FAULTS) {
  t.test(`${name}: requests that reach a model server and are charged to nobody are at most those in flight when it began`, async (t) => {
    const { step, end: ended } = openSteps(t)
    const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
    const [image, disk] = [join(folder, 'image'), join(folder, 'disk')]
    writeFileSync(image, '')
    truncateSync(image, 64 * 1024 * 1024)
    await mkdir(disk)
    run('mkfs.ext4', '-q', '-F', '-m', '0', image)
    run('mount', '-o', 'loop', image, disk)
    await mkdir(join(disk, 'store'))
    const upstream = await openUpstream(async (response) => {
      await pause(UPSTREAM_MS)
      respond(response, 200, completion('Hello', { usage: { prompt_tokens: 0, completion_tokens: 1 } }))
    })
    await declare(folder, 'plans', codingPlan('plan', { requestsPerMinute: 1_000_000 }, WINDOWS), apiKey('key', 'plan'))
    writeFileSync(join(folder, 'upstreams.yaml'), `upstreams: [{ name: fake, baseUrl: "${upstream.url}", model: fake-1, apiKey: none, wire: chat, retry: { attempts: 1 } }]\n`)
    const program = await start({ folder, env: { UPSTREAMS: join(folder, 'upstreams.yaml'), STORE_URL: `sqlite:${disk}/store/tollgate.db` } })
    t.teardown(async () => {
      await Promise.all([program.kill(), upstream.close()])
      spawnSync('umount', ['-l', disk])
      await rm(folder, { recursive: true, force: true })
    })
    const key = await program.key('key')
    const readyz = async () => {
      const seen = await fetch(`${program.opsUrl}/readyz`)
      return { status: seen.status, text: await seen.text() }
    }

    let isOver = false
    let open = 0
    const seen = { before: new Map<number, number>(), during: new Map<number, number>(), after: new Map<number, number>() }
    let phase: keyof typeof seen = 'before'
    const refusedMs: number[] = []
    const client = async (): Promise<void> => {
      while (!isOver) {
        open++
        const since = performance.now()
        const { status } = await answer(await post(program, key, '/v1/chat/completions', BODY))
        open--
        seen[phase].set(status, (seen[phase].get(status) ?? 0) + 1)
        if (phase === 'during' && status !== 200) refusedMs.push(performance.now() - since)
        if (status !== 200) await pause(200)
      }
    }
    const clients = Array.from({ length: CLIENTS }, client)
    await step('load before', () => pause(3_000))
    const [inFlight, sentBefore] = [open, upstream.requests.length]
    phase = 'during'
    begin(disk)
    const since = performance.now()
    let noticed: string | null = null
    while (noticed === null && performance.now() - since < NOTICED_MS) {
      await pause(200)
      const { status, text } = await readyz()
      if (status === 503) noticed = text
    }
    t.ok(noticed, `/readyz fails within ${NOTICED_MS / 1000} s: ${noticed}`)
    await pause(Math.max(0, LASTS_MS - (performance.now() - since)))
    const sentDuring = upstream.requests.length - sentBefore
    phase = 'after'
    end(disk)
    await step('until ready', () => eventually('/readyz to succeed', async () => ((await readyz()).status === 200 ? true : null)))
    await step('load after', () => pause(3_000))
    isOver = true
    await Promise.all(clients)
    const { weekly } = await step('until all is settled', () => used(program, key))
    const uncharged = upstream.requests.length - weekly
    const counts = Object.entries(seen).map(([when, statuses]) => `${when} ${[...statuses].map(([status, count]) => `${count} × ${status}`).join(', ')}`)
    refusedMs.sort((a, b) => a - b)
    const [median, slowest] = [refusedMs[refusedMs.length >> 1], refusedMs.at(-1)].map((ms) => Math.round(ms ?? 0))
    t.comment(`a refused request took ${median} ms (median), ${slowest} ms at most; ${uncharged} are charged to nobody`)
    t.comment(`${inFlight} in flight when it began, ${sentDuring} requests sent to the model server meanwhile, ${upstream.requests.length} in all; ${counts.join('; ')}`)
    t.same([...seen.before.keys()], [200], 'no request was refused before')
    t.ok(uncharged >= 0 && uncharged <= inFlight, `${uncharged} requests are charged to nobody, with ${inFlight} in flight`)
    ended()
  })
}
