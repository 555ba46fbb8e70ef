/** A scripted engine, added to the engines backend as the type `fake`. Makes every kind and operation. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { notMade, openEngines, type Engine, type EngineRequest, type Engines, type Input, type Made, type NotMade, type OpenEngine, type Run } from '../../src/backends/engines/engine.ts'
import { amountsOf, GENERATION_OPTIONS, KINDS, type Limits } from '../../src/domain/media-generations.ts'
import { amountsAtMost, OPERATIONS } from '../../src/domain/media-operations.ts'

/**
 * Behaviour of one run. `hang` waits for `release`, then completes; `throw` violates the engine's contract; `job` starts a job unless there is one, remembers it, and then does the
 * step within; `results` makes fewer of several results.
 */
export type Step = 'make' | 'hang' | 'throw' | { results: number } | { fail: NotMade['code']; retryable: boolean; input?: number } | { progress: number[] } | { job: string; afterwards: Step }

/** An input as a run read it. */
export type ReadInput = Pick<Input, 'role' | 'contentType' | 'bytes'> & { content: Buffer }

export type FakeEngine = {
  open: OpenEngine
  /** Behaviour of the next runs, in order; later runs complete. */
  next(...steps: Step[]): void
  /** The requests of all started runs. */
  runs: EngineRequest[]
  /** The inputs of the same runs, read to their end. */
  inputs: ReadInput[][]
  /** The limits of the same runs. */
  limits: Limits[]
  /** The jobs that the same runs were given to resume. */
  jobs: (string | null)[]
  /** The abort reasons of hanging runs. */
  aborts: string[]
  /** Resolves when so many runs have started. */
  begun(count: number): Promise<void>
  /** Releases all hanging runs. */
  release(): void
  /** Names of the opened and of the closed engines. */
  opened: string[]
  closed: string[]
}

/** The result of every run. */
export const MADE = Buffer.from('made by the fake engine')
/** The usage of every operation. */
export const USED = { Job: 1000, Second: 1500, Megapixel: 250 }

export const LIMITS: Limits = { pixels: 16_000_000, durationMs: 600_000, bytes: 100_000_000 }

/** The control of a run, with what a test gives it. */
export function runControl(more: Partial<Parameters<Engine['run']>[1]> = {}): Parameters<Engine['run']>[1] {
  const job: Run['job'] = { id: null, remember: async () => {} }
  return { model: null, limits: LIMITS, inputs: [], job, idempotencyKey: 'task:1', signal: new AbortController().signal, progress: () => {}, ...more }
}

export function fakeEngine(kinds: readonly string[] = [...KINDS, ...OPERATIONS]): FakeEngine {
  const steps: Step[] = []
  const waiting: { count: number; resolve: () => void }[] = []
  let released = Promise.withResolvers<void>()

  function made(request: EngineRequest, results = ('width' in request && request.n) || 1): Made {
    const common = { outcome: 'made', body: MADE, contentType: 'image/png' } as const
    if (!('width' in request)) return { ...common, facts: { width: 500, height: 500, durationMs: null }, used: USED }
    const { width, height, durationMs } = request
    const one = { ...common, facts: { width, height, durationMs } }
    const others = Array.from({ length: results - 1 }, (_, i) => ({ ...one, body: Buffer.from(`${MADE.toString()}, ${i + 2}`) }))
    return { ...one, used: amountsOf({ ...request, n: results }), ...(others.length > 0 && { others }) }
  }

  async function take(step: Step, request: EngineRequest, control: Run): Promise<Made | NotMade> {
    if (step === 'throw') throw new Error('the secret of the provider')
    if (step === 'hang') await Promise.race([released.promise, aborted(control.signal, fake.aborts)])
    if (typeof step === 'object' && 'progress' in step) for (const percent of step.progress) control.progress(percent)
    if (typeof step === 'object' && 'fail' in step) return { ...notMade(step.fail, step.retryable, new Error('as scripted')), ...(step.input !== undefined && { input: step.input }) }
    if (typeof step === 'object' && 'results' in step) return made(request, step.results)
    if (typeof step !== 'object' || !('job' in step)) return made(request)
    if (control.job.id === null) await control.job.remember(step.job)
    return take(step.afterwards, request, control)
  }

  const fake: FakeEngine = {
    runs: [],
    inputs: [],
    limits: [],
    jobs: [],
    aborts: [],
    opened: [],
    closed: [],
    next: (...more) => void steps.push(...more),
    begun(count) {
      const { promise, resolve } = Promise.withResolvers<void>()
      waiting.push({ count, resolve })
      wake()
      return promise
    },
    release() {
      released.resolve()
      released = Promise.withResolvers<void>()
    },
    async open(name) {
      fake.opened.push(name)
      const engine: Engine = {
        offers: Object.fromEntries(kinds.map((kind) => [kind, { formats: ['png'] }])),
        options: () => GENERATION_OPTIONS,
        quote: amountsAtMost,
        async run(request, control) {
          control.signal.throwIfAborted()
          const inputs = await Promise.all(control.inputs.map(readInput))
          fake.inputs.push(inputs)
          fake.limits.push(control.limits)
          fake.jobs.push(control.job.id)
          fake.runs.push(request)
          wake()
          return take(steps.shift() ?? 'make', request, control)
        },
        async close() {
          if (!fake.closed.includes(name)) fake.closed.push(name)
        },
      }
      return engine
    },
  }

  function wake(): void {
    for (const { resolve } of waiting.filter(({ count }) => fake.runs.length >= count)) resolve()
  }

  return fake
}

async function readInput({ role, contentType, bytes, read }: Input): Promise<ReadInput> {
  return { role, contentType, bytes, content: Buffer.concat(await Array.fromAsync(read())) }
}

function aborted(signal: AbortSignal, aborts: string[]): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  const abort = () => {
    aborts.push(String((signal.reason as { why?: string }).why))
    reject(signal.reason)
  }
  signal.addEventListener('abort', abort, { once: true })
  return promise
}

/** An ENGINES file over one fake engine, for generations. */
export const FAKE_ENGINES = `\
engines:
  - { name: fake, type: fake }
routes:
  - { kind: image, engine: fake, price: { amount: "0.04", per: Job } }
  - { kind: video, engine: fake, price: { amount: "0.05", per: Second }, max: { seconds: 60 } }
  - { kind: music, engine: fake, price: { amount: "0.01", per: Second } }
`

/** The same with the operations, each of which is priced by another unit or limited in another way. */
export const FAKE_OPERATIONS = `\
${FAKE_ENGINES}\
  - { operation: background_remove, engine: fake, price: { amount: "0.02", per: Job }, max: { megapixels: 1, megabytes: 0.1 } }
  - { operation: upscale, engine: fake, price: { amount: "0.08", per: Megapixel }, max: { megapixels: 2 } }
  - { operation: ai_edit, engine: fake, price: { amount: "0.05", per: Job } }
  - { operation: inpaint, engine: fake, price: { amount: "0.03", per: Megapixel }, max: { megapixels: 4 } }
  - { operation: trim, engine: fake, price: { amount: "0.01", per: Second }, max: { seconds: 60 } }
  - { operation: merge, engine: fake, price: { amount: "0.02", per: Second }, max: { seconds: 30, megabytes: 0.1 } }
`

export const silent = { info() {}, warn() {} }

/** The engines backend over a fake engine, ready, closed at the end of the test. */
export async function openFakeEngines(t: Test, fake: FakeEngine, file = FAKE_ENGINES): Promise<Engines> {
  const engines = await openEngines({ file: join(t.testdir({ 'engines.yaml': file }), 'engines.yaml'), log: silent })
  t.teardown(() => engines.close())
  engines.add('fake', fake.open)
  await engines.ready()
  return engines
}
