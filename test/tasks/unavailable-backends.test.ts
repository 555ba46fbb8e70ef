/** Runs during which a backend is away: they are repeated, and cost no attempt. */
import { rm } from 'node:fs/promises'
import { mock } from 'node:test'
import { setImmediate as nextTurn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { openFiles, type Files } from '../../src/backends/files/files.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { sweepTasks } from '../../src/tasks/recovery-sweeps.ts'
import { claimDue } from '../../src/tasks/claim-tasks.ts'
import { runEngine, type EngineContext } from '../../src/tasks/run-engine.ts'
import { notMade, type Control } from '../../src/backends/engines/engine.ts'
import { conclude, forgiveLostLease, type RunOutcome } from '../../src/tasks/run-outcome.ts'
import type { Task } from '../../src/domain/task.ts'
import type { TaskContext } from '../../src/tasks/task-context.ts'
import { VALID } from '../contracts/operations/bodies.ts'
import { openSources } from '../contracts/operations/sources.ts'
import { hold, mediaPlan, T0, task } from '../contracts/store/acme.ts'
import { LIMITS } from '../fakes/engine.ts'
import { run, type TaskRunContext } from '../../plugins/worker/task-run.ts'
import { isFinal, openStudio } from '../plugins/studio.ts'
import { contextOf, storeOf } from './task-context.ts'

const HOUR_MS = 3_600_000
const SQUARE = { prompt: 'a square', width: 64, height: 64, durationMs: null, seed: null, format: 'png' }

/** Files on disk of which each verb in `away` is unavailable for so many calls. */
async function failing(t: Test, away: Partial<Record<'put' | 'get', number>>): Promise<Files> {
  const folder = `${t.testdirName}-failing`
  await rm(folder, { recursive: true, force: true })
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  const files = await openFiles(`disk:${folder}`)
  const left = { put: 0, get: 0, ...away }
  const gate = (verb: 'put' | 'get'): void => {
    if (left[verb]-- > 0) throw new Unavailable('files', new Error('as scripted'))
  }
  return {
    ...files,
    put: async (...args) => (gate('put'), files.put(...args)),
    get: async (...args) => (gate('get'), files.get(...args)),
  }
}

t.test('finished media are kept until the files backend takes them', async (t) => {
  const studio = await openStudio(t, { files: await failing(t, { put: 2 }), media: { attempts: 1 } })
  const { id } = (await studio.create()).json()
  t.match(await studio.until(id, isFinal), { status: 'completed', attempts: 1 })
  t.equal(studio.engine.runs.length, 1)
})

/** Runs of an engine whose results are streams that may be read again until they are released. `persist` repeats a write so many times. */
function streaming(files: Files, writes: number, one = task(1), words = ['one ', 'picture']) {
  const seen = { runs: 0, released: 0 }
  const offer = () => ({ route: { engine: 'fake', model: null, max: LIMITS, timeoutMs: HOUR_MS }, formats: ['png'] })
  const body = { [Symbol.asyncIterator]: async function* () { yield* words.map((word) => Buffer.from(word)) } }
  const run = async () => (seen.runs++, { outcome: 'made', body, bytes: words.join('').length, release: async () => void seen.released++, contentType: 'image/png', facts: { width: 64, height: 64, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 5 } })
  const persist = async <T>(write: () => Promise<T>) => {
    for (let left = writes - 1; left > 0; left--) await write().catch(() => {})
    return write()
  }
  const context = { files, engines: { offer, run }, clock: () => T0, log: {}, linkedFile: () => null, inputTimeoutMs: HOUR_MS, resultMs: HOUR_MS, persist } as unknown as EngineContext
  const job = (id: string | null) => ({ id, remember: async () => {} })
  const ran = (id: string | null = null, signal = new AbortController().signal) => runEngine(context, { ...one, state: 'processing', input: SQUARE, epoch: 1 }, { signal, progress: () => {}, job: job(id), idempotencyKey: '' })
  return { seen, ran }
}

t.test('media that are too large for memory are kept as well, and given up once they are stored', async (t) => {
  const files = await failing(t, { put: 2 })
  const { seen, ran } = streaming(files, 3)
  const made = await ran()
  t.match(made, { outcome: 'made', result: { bytes: 11 } })
  t.same(seen, { runs: 1, released: 1 })
  t.equal(Buffer.concat(await (await files.get(`${task(1).id}-1`))!.stream.toArray()).toString(), 'one picture')
})

t.test('while the files backend takes nothing, no run begins what would be paid for; a job that was begun is resumed', async (t) => {
  const { seen, ran } = streaming(await failing(t, { put: 3 }), 1)
  await t.rejects(ran(), Unavailable)
  t.same(seen, { runs: 1, released: 1 })
  await t.rejects(ran(), Unavailable)
  t.equal(seen.runs, 1, 'not begun')
  await t.rejects(ran('job-1'), Unavailable)
  t.equal(seen.runs, 2, 'the result of a job may be stored by now')
  t.match(await ran(), { outcome: 'made' })
})

t.test('a result that a full disk did not take is made again once its size fits, whatever smaller ones fit before', async (t) => {
  const disk = await failing(t, {})
  let room = 10
  const put: Files['put'] = async (id, body, facts) => {
    const bytes = Buffer.concat(body instanceof Uint8Array ? [body] : await Array.fromAsync(body))
    if (bytes.length > room) throw new Unavailable('files', new Error('no space left'))
    return disk.put(id, bytes, facts)
  }
  const { seen, ran } = streaming({ ...disk, put }, 1, task(7))
  for (const _ of [1, 2]) await t.rejects(ran(), Unavailable)
  t.equal(seen.runs, 1)
  t.match(await streaming({ ...disk, put }, 1, task(8), ['small']).ran(), { outcome: 'made' }, 'another task')
  await t.rejects(ran(), Unavailable)
  t.equal(seen.runs, 1)
  room = 11
  await t.rejects(ran(null, AbortSignal.abort(new Error('stop'))), { message: 'stop' }, 'a stop waits for no trial')
  t.match(await ran(), { outcome: 'made' })
  t.same((await disk.list('', 9)).toSorted(), [`${task(7).id}-1`, `${task(8).id}-1`], 'what was tried is removed')
})

/** The times (ms) at which a run tries to store its result, whose every try fails with `error`. */
async function triesToStore(t: Test, error: Error): Promise<number[]> {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  let now = 0
  const tries: number[] = []
  const store = { moveTask: async () => null, task: async () => task(9, { state: 'completed', epoch: 2 }), renewTask: async () => 'ok' } as unknown as TaskContext['store']
  const log = { info: () => {}, warn: () => {}, error: () => {} }
  const tasks = { store, clock: () => now, random: () => 0, log } as unknown as TaskContext
  const files = { put: async () => (tries.push(now), Promise.reject(error)) } as unknown as Files
  const engines = { offer: () => ({ formats: ['png'], route: { engine: 'fake', model: null, max: LIMITS, timeoutMs: HOUR_MS } }), run: async () => ({ outcome: 'made', body: Buffer.from('x'), contentType: 'image/png', used: { Job: 1000, Second: 0, Megapixel: 0 } }) }
  const media = { ...tasks, files, engines, linkedFile: () => null, inputTimeoutMs: HOUR_MS, resultMs: HOUR_MS } as unknown as TaskRunContext['media']
  const context = { tasks, media, leaseMs: 30_000, ran: () => {}, stopping: () => false, log: log as unknown as TaskRunContext['log'] }
  const running = { ended: false }
  void run(context, task(9, { state: 'processing', epoch: 1, input: SQUARE }), new AbortController()).finally(() => (running.ended = true))
  for (; !running.ended && now < HOUR_MS; now += 500, mock.timers.tick(500)) for (let turn = 0; turn < 10; turn++) await nextTurn()
  mock.timers.reset()
  return tries
}

t.test('a result is stored again after growing pauses while a backend is away, for ten leases, and not after another error', async (t) => {
  const tries = await triesToStore(t, new Unavailable('files', new Error('away')))
  t.same(tries.slice(0, 7), [0, 500, 1500, 3500, 7500, 12_500, 17_500])
  t.match(tries.at(-1), 302_500)
  t.same(await triesToStore(t, new RangeError('as scripted')), [0])
})

t.test('a run whose source cannot be read for lack of the files backend is repeated, and costs no attempt', async (t) => {
  const studio = await openStudio(t, { files: await failing(t, { get: 1 }), media: { attempts: 1 } })
  const { urls } = await openSources(t)
  const { id } = (await studio.operate(VALID.upscale(urls))).json()
  await studio.until(id, ({ status, attempts }) => status === 'processing' && attempts === 0, 'operations')
  studio.time.now += 60_000
  t.match(await studio.until(id, isFinal, 'operations'), { status: 'completed', attempts: 1 })
})

t.test('a run that its provider puts off is repeated after that time, and costs no attempt for an hour', async (t) => {
  const { minutes, ended } = await runs(t, { outcome: 'failed', code: 'provider_error', retryable: true, retryAfterMs: 600_000 })
  const [first, second] = minutes
  t.ok(first === 0 && second !== undefined && second >= 10 && second < 10.1, `again after ${second} minutes`)
  t.equal(minutes.length, 7, 'six in the first hour')
  t.match(ended, { state: 'failed', attempts: 2, outcome: { code: 'provider_error' } })
})

t.test('a provider that asks for no more than a second is asked at growing intervals, up to a minute', async (t) => {
  for (const retryAfterMs of [0, 1000]) {
    const { minutes } = await runs(t, { outcome: 'failed', code: 'provider_error', retryable: true, retryAfterMs })
    t.ok(minutes.length > 50 && minutes.length < 80, `${minutes.length} runs in the hour`)
    t.ok((minutes[1] ?? 1) < 0.1, 'the first ones soon')
  }
})

/** Claims the one task whenever it is ready, in the time of `now`, and ends each run by `made` until it is final. Returns the runs, by the minute. */
async function runs(t: Test, made: RunOutcome): Promise<{ minutes: number[]; ended: Task | null }> {
  const store = await storeOf(t)
  await store.change('acme/studio', mediaPlan(), T0)
  const queued = task(1, { state: 'queued', maxAttempts: 2, job: 'job-1' })
  await store.createTask(queued)
  await store.change('acme/studio', { ...hold(queued.id, queued.kind), amount: queued.estimatedCost }, T0)
  let now = T0
  const context = contextOf(store, () => now, { random: () => 1 })
  const minutes: number[] = []
  for (; now < T0 + 2 * HOUR_MS; now += 1000) {
    const claimed: Task[] = []
    await claimDue(context, { kinds: [queued.kind], limit: 1, leaseMs: 30_000, start: (one) => claimed.push(one) })
    for (const one of claimed) {
      if (made.outcome === 'unavailable' && now < T0 + HOUR_MS) t.equal(one.job, 'job-1', 'a run resumes the job of the one before')
      minutes.push((now - T0) / 60_000)
      const concluded = await conclude(context, one, made)
      if (concluded.outcome === 'failed') return { minutes, ended: concluded.task }
    }
  }
  return { minutes, ended: null }
}

t.test('a backend that stays away costs no attempt for an hour, with runs a minute apart at most, and then fails the task', async (t) => {
  const { minutes, ended } = await runs(t, { outcome: 'unavailable' })
  t.match(ended, { state: 'failed', outcome: { code: 'internal' }, attempts: 2, actualCost: 0 })
  t.ok(minutes.length > 50 && minutes.length < 80, `${minutes.length} runs`)
  t.ok(minutes.every((at, n) => n === 0 || at - (minutes[n - 1] ?? 0) < 1.1))
  t.ok((minutes.at(-2) ?? 0) >= 60 && (minutes.at(-3) ?? 60) < 60, 'the attempts are counted from the hour on')
})

t.test('a failure of the engine counts as an attempt at once', async (t) => {
  const { minutes, ended } = await runs(t, { outcome: 'failed', code: 'provider_error', retryable: true })
  t.match(ended, { state: 'failed', attempts: 2 })
  t.equal(minutes.length, 2)
})

t.test('the log has the reason for which a sweep failed a task', async (t) => {
  const store = await storeOf(t)
  await store.change('acme/studio', mediaPlan(), T0)
  await store.createTask(task(1, { state: 'processing', lostLeases: 2, epoch: 1, sweepAt: T0 }))
  const lines: unknown[] = []
  const log = { info() {}, error() {}, warn: (facts: object) => void lines.push(facts) }
  await sweepTasks(contextOf(store, () => T0 + 1, { log }))
  t.match(lines, [{ event: 'task_failed_by_sweep', taskId: task(1).id, code: 'internal', reason: '3 leases of its runs expired' }])
})

t.test('a job that is paid for is resumed though its source is gone; a new one is not begun without it', async (t) => {
  const files = await failing(t, {})
  const input = { prompt: 'waves', width: 64, height: 48, durationMs: 1000, seed: null, format: 'mp4', image_url: 'http://files/gone' }
  const ordered = task(1, { state: 'processing', kind: 'video', input, price: { kind: 'video', micro: 50_000, per: 'Second' }, epoch: 2 })
  const result = { outcome: 'made', body: Buffer.from('film'), contentType: 'video/mp4', facts: { width: 64, height: 48, durationMs: 1000 }, used: { Job: 1000, Second: 1000, Megapixel: 4 } }
  const offer = () => ({ route: { engine: 'fake', model: null, max: LIMITS, timeoutMs: HOUR_MS }, formats: ['mp4'] })
  // As runs of jobs do: the sources are read when a job is begun.
  const run = async (_request: unknown, { job, inputs }: Control) =>
    job.id === 'job-1' ? result : Promise.try(async () => Array.fromAsync(inputs[0]!.read())).then(() => result, (cause: unknown) => notMade('internal', true, cause))
  const log = { info: () => {}, warn: () => {}, error: () => {} }
  const context = { files, engines: { offer, run }, clock: () => T0, log, linkedFile: () => 'gone', inputTimeoutMs: HOUR_MS, resultMs: HOUR_MS, persist: <T>(write: () => Promise<T>) => write() } as unknown as EngineContext
  const ran = (id: string | null) => runEngine(context, ordered, { signal: new AbortController().signal, progress: () => {}, job: { id, remember: async () => {} }, idempotencyKey: '' })
  t.match(await ran('job-1'), { outcome: 'made', cost: 50_000 })
  for (const id of [null, 'lost']) t.match(await ran(id), { outcome: 'failed', code: 'input_unreachable', retryable: false, details: { source: '/image_url' } })
})

t.test('a slow store gets one renewal of a lease at a time', async (t) => {
  const seen = { open: 0, most: 0, count: 0 }
  const enough = Promise.withResolvers<void>()
  let release = (): void => {}
  const renewTask = (): Promise<'ok'> => {
    seen.most = Math.max(seen.most, ++seen.open)
    return new Promise((resolve) => {
      release = () => {
        release = () => {}
        seen.open--
        if (++seen.count === 3) enough.resolve()
        resolve('ok')
      }
    })
  }
  const ended = task(1, { state: 'completed', epoch: 1 })
  const store = { renewTask, moveTask: async () => null, task: async () => ended } as unknown as TaskContext['store']
  const log = { info: () => {}, warn: () => {}, error: () => {} }
  const tasks = { store, clock: () => 0, random: () => 0, log } as unknown as TaskContext
  // The engine waits for three renewals, each of which takes as long as ten intervals of renewals.
  const timer = setInterval(() => release(), 100)
  t.teardown(() => clearInterval(timer))
  const engines = { offer: () => ({ formats: ['png'], route: { engine: 'fake', model: null, max: LIMITS, timeoutMs: HOUR_MS } }), run: async () => (await enough.promise, { outcome: 'failed', code: 'provider_rejected', retryable: false, cause: null }) }
  const media = { ...tasks, engines, inputTimeoutMs: HOUR_MS } as unknown as TaskRunContext['media']
  await run({ tasks, media, leaseMs: 30, ran: () => {}, stopping: () => false, log: log as unknown as TaskRunContext['log'] }, task(1, { state: 'processing', epoch: 1, input: SQUARE }), new AbortController())
  t.match(seen, { most: 1, count: 3 })
})

t.test('a lease that a live worker has lost is not counted, until an hour after the first run', async (t) => {
  const store = await storeOf(t)
  await store.createTask(task(1, { state: 'queued', lostLeases: 2, epoch: 3, startedAt: T0 }))
  const found = async () => (await store.task('acme', task(1).id)) as Task
  await forgiveLostLease({ store, clock: () => T0 + 1000 }, await found())
  t.equal((await found()).lostLeases, 1)
  await forgiveLostLease({ store, clock: () => T0 + HOUR_MS }, await found())
  t.equal((await found()).lostLeases, 1)
  await forgiveLostLease({ store, clock: () => T0 + 1000 }, { ...(await found()), epoch: 2 })
  t.equal((await found()).lostLeases, 1, 'another run has it')
})

t.test('a live worker whose lease was lost ends its run and takes that off the count', async (t) => {
  const taken = task(1, { state: 'queued', epoch: 1, lostLeases: 2, startedAt: T0 })
  const moved: unknown[] = []
  const store = { renewTask: async () => 'lost', moveTask: async (...move: unknown[]) => (moved.push(move), taken), task: async () => taken } as unknown as TaskContext['store']
  const log = { info: () => {}, warn: () => {}, error: () => {} }
  const tasks = { store, clock: () => T0, random: () => 0, log } as unknown as TaskContext
  const aborted = (signal: AbortSignal) => new Promise((_resolve, reject) => signal.addEventListener('abort', () => reject(signal.reason)))
  const engines = { offer: () => ({ formats: ['png'], route: { engine: 'fake', model: null, max: LIMITS, timeoutMs: HOUR_MS } }), run: (_: unknown, control: { signal: AbortSignal }) => aborted(control.signal) }
  const media = { ...tasks, engines, inputTimeoutMs: HOUR_MS } as unknown as TaskRunContext['media']
  const cut = new AbortController()
  await run({ tasks, media, leaseMs: 30, ran: () => t.fail('a lost run has no outcome'), stopping: () => false, log: log as unknown as TaskRunContext['log'] }, task(1, { state: 'processing', epoch: 1, input: SQUARE }), cut)
  t.match(cut.signal.reason, { why: 'lost' })
  t.match(moved, [[taken.id, { from: ['queued'], epoch: 1 }, 'queued', { lostLeases: 1 }]])
})
