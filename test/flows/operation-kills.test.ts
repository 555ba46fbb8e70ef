/** SIGKILL of the process that runs operations of the local engines, amid their real child processes: another process finishes the tasks. */
import { execFileSync } from 'node:child_process'
import { mkdir, readdir, readFile, readlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import t, { type Test } from 'tap'
import { missingOperations } from '../../engines/image/image-engine.ts'
import { readModels, type Modelled } from '../../engines/image/models.ts'
import { blankCanvas } from '../../src/backends/engines/painter/canvas.ts'
import { png } from '../../src/backends/engines/preview/png-encoder.ts'
import { programs, withoutFfmpeg } from '../backends/engines/ffmpeg-media.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { TETHER } from '../servers/process.ts'
import { folderFor } from '../temporary-folder.ts'
import { answer, at, get, post, type Json } from './calls.ts'
import { eventually } from './eventually.ts'
import { apiKey, declare, mediaPlan } from './manifests.ts'
import type { Program } from './program.ts'
import { SIDES, SIDE_TIMEOUT_MS, type Start } from './sides.ts'

t.setTimeout(SIDE_TIMEOUT_MS)

const missing = missingOperations(readModels({}).models)
const imageSkip = (kind: Modelled): string | false => missing[kind] ?? false

/** The operations of the local engines, each long enough to be interrupted, and why one cannot run here. */
const OPERATIONS: readonly { body: (url: string) => { operation: string }; skip: string | false }[] = [
  { body: (url) => ({ operation: 'trim', media_url: `${url}/film`, start_time: 0.5 }), skip: withoutFfmpeg },
  { body: (url) => ({ operation: 'merge', media_urls: [`${url}/film`, `${url}/film`], transition: 'fade' }), skip: withoutFfmpeg },
  { body: (url) => ({ operation: 'upscale', media_url: `${url}/picture`, scale: 2 }), skip: imageSkip('upscale') },
  { body: (url) => ({ operation: 'background_remove', media_url: `${url}/picture` }), skip: imageSkip('background_remove') },
  { body: (url) => ({ operation: 'inpaint', media_url: `${url}/picture`, mask_url: `${url}/mask`, prompt: 'grass' }), skip: imageSkip('inpaint') },
]

const skip = (process.platform !== 'linux' || TETHER.length === 0) && 'needs /proc and setpriv of Linux'
for (const side of SIDES) {
  t.test(`${side.name}: SIGKILL amid the child processes of operations: none is left, nor a scratch folder, and each task is completed and charged once`, { timeout: SIDE_TIMEOUT_MS, skip }, async (t) => {
    const start = await side.open(t)
    if (start) await kills(t, start)
  })
}

/** A picture with edges, and a mask of its middle. */
function pictures(): { picture: Buffer; mask: Buffer } {
  const [width, height] = [160, 120]
  const [picture, mask] = [blankCanvas(width, height), blankCanvas(width, height)]
  picture.rgb.forEach((_value, i) => (picture.rgb[i] = (i * 7 + Math.floor(i / (3 * width)) * 13) % 251))
  mask.rgb.forEach((_value, i) => (mask.rgb[i] = Math.hypot((i / 3) % width - width / 2, Math.floor(i / (3 * width)) - height / 2) < 24 ? 255 : 0))
  return { picture: Buffer.from(png(picture)), mask: Buffer.from(png(mask)) }
}

async function openSource(t: Test, folder: string): Promise<string> {
  const files: Record<string, Buffer> = { '/picture': pictures().picture, '/mask': pictures().mask }
  if (!withoutFfmpeg) {
    const film = join(folder, 'film.mp4')
    execFileSync(programs.ffmpeg, ['-v', 'error', '-nostdin', '-f', 'lavfi', '-i', 'testsrc2=s=640x360:r=25:d=4', '-c:v', 'libx264', '-preset', 'ultrafast', '-pix_fmt', 'yuv420p', film])
    files['/film'] = await readFile(film)
  }
  const source = await openReceiver(t)
  source.always(({ path }) => ({ status: 200, body: files[path] ?? '' }))
  return source.url
}

/** The running programs with a folder in their arguments: ffmpeg, or Node for pictures. */
async function programsIn(folder: string): Promise<{ pid: number; command: string }[]> {
  const found: { pid: number; command: string }[] = []
  for (const pid of (await readdir('/proc')).map(Number).filter((pid) => pid > 0)) {
    const [command, program] = await Promise.all([readFile(`/proc/${pid}/cmdline`, 'utf8'), readlink(`/proc/${pid}/exe`)]).catch(() => ['', ''])
    if (command.includes(folder) && /^(ffmpeg|node)$/.test(basename(program))) found.push({ pid, command })
  }
  return found
}

/** Stops the running programs in a folder, which do not end then unless they are killed, and returns those of its folders that have one. */
async function stopIn(folder: string): Promise<Set<string>> {
  const stopped = new Set<string>()
  for (const { pid, command } of await programsIn(folder)) {
    try {
      process.kill(pid, 'SIGSTOP')
      stopped.add(/^[^/\0]+/.exec(command.slice(command.indexOf(folder) + folder.length + 1))![0])
    } catch {
      // It has just ended.
    }
  }
  return stopped
}

async function kills(t: Test, start: Start): Promise<void> {
  const folder = await folderFor(t)
  await mkdir(join(folder, 'tmp'))
  await declare(folder, 'plans', mediaPlan('studio', {}, { maxConcurrentTasks: OPERATIONS.length }), apiKey('studio-key', 'studio'))
  const url = await openSource(t, folder)
  const env = { EGRESS_ALLOW: '127.0.0.1/32', TASK_LEASE_SECONDS: '2', WORKER_SLOTS: String(OPERATIONS.length), TMPDIR: join(folder, 'tmp') }
  let program: Program = await start({ folder, env })
  let worker = program
  t.teardown(async () => {
    await Promise.all([program.kill(), worker.kill()])
    for (const { pid } of await programsIn(scratch)) process.kill(pid, 'SIGKILL')
  })
  const key = await program.key('studio-key')
  const scratch = join(folder, 'tmp', `tollgate-${process.getuid?.()}`)

  /** Kills the process that works: the only one, or the worker alone. */
  async function killWorker(): Promise<void> {
    const working = worker.processes.find(({ role }) => role === 'worker' || role === 'all')
    await working?.kill()
  }

  async function restart(): Promise<void> {
    if (program.processes.length === 1) worker = program = await start({ folder, env })
    else worker = await start({ folder, env, roles: ['worker'] })
  }

  const tasks: Json[] = []
  for (const { body, skip } of OPERATIONS) {
    const request = body(url)
    await t.test(request.operation, { skip }, async (t) => {
      const { status, body: task } = await answer(await post(program, key, '/api/v1/operations', request))
      t.equal(status, 202)
      tasks.push(task)
      // Stopped at once: it could end while the others are created.
      await eventually('a child process of each', async () => ((await stopIn(scratch)).size === tasks.length ? true : null))
    })
  }
  const left = await readdir(scratch)
  t.equal(left.length, tasks.length, 'the scratch folders of the runs')
  await killWorker()
  await eventually('the end of the child processes', async () => ((await programsIn(scratch)).length === 0 ? true : null))
  t.same(await readdir(scratch), left)
  await restart()
  t.same((await readdir(scratch)).filter((name) => left.includes(name)), [], 'the start removed the folders')

  let charged = 0
  for (const task of tasks) {
    const done = await ended(program, key, task)
    t.match(done, { status: 'completed', error: null })
    t.ok(Number(at(done, 'actual_cost')) > 0)
    charged += Math.round(Number(at(done, 'actual_cost')) * 1e6)
  }
  const { body } = await eventually('all money to be settled', async () => {
    const usage = await get(program, key, '/api/v1/usage')
    return at(usage.body, 'held') === '0.0000' ? usage : null
  })
  t.equal(Math.round(Number(at(body, 'burned')) * 1e6), charged, 'each is charged once')
  t.same(await readdir(scratch).catch(() => []), [])
  t.same(await programsIn(scratch), [])
}

/** The lease has to pass first, and encoding takes as long as the machine's load makes it. */
function ended(program: Program, key: string, task: Json): Promise<Json> {
  const look = async () => {
    const { body } = await get(program, key, `/api/v1/operations/${String(at(task, 'id'))}`)
    return ['completed', 'failed', 'canceled'].includes(String(at(body, 'status'))) ? body : null
  }
  return eventually('the end of a task', look, SIDE_TIMEOUT_MS)
}
