/** An engine that does what a test tells it, added to the engines backend as the type `fake`. Makes every kind. */
import { join } from 'node:path'
import type { Test } from 'tap'
import { notMade, openEngines, type Engine, type Engines, type Made, type NotMade, type OpenEngine } from '../../src/backends/engines/engine.ts'
import { amountsOf, type GenerationRequest } from '../../src/domain/generations.ts'

/** What one run does. `hang` waits for `release`, then makes it; `throw` breaks the engine's own promise. */
export type Step = 'make' | 'hang' | 'throw' | { fail: NotMade['code']; retryable: boolean } | { progress: number[] }

export type FakeEngine = {
  open: OpenEngine
  /** What the next runs do, in their order; those after them make it. */
  next(...steps: Step[]): void
  /** The requests of all runs that were begun. */
  runs: GenerationRequest[]
  /** Resolves when so many runs were begun. */
  begun(count: number): Promise<void>
  /** Lets all runs that hang go on. */
  release(): void
  /** The names under which engines were opened, and those that were closed. */
  opened: string[]
  closed: string[]
}

/** What every run makes. */
export const MADE = Buffer.from('made by the fake engine')

export function fakeEngine(): FakeEngine {
  const steps: Step[] = []
  const waiting: { count: number; resolve: () => void }[] = []
  let released = Promise.withResolvers<void>()

  function made(request: GenerationRequest): Made {
    const { width, height, durationMs } = request
    return { outcome: 'made', body: MADE, contentType: 'image/png', facts: { width, height, durationMs }, used: amountsOf(request) }
  }

  const fake: FakeEngine = {
    runs: [],
    opened: [],
    closed: [],
    next: (...more) => void steps.push(...more),
    begun(count) {
      const { promise, resolve } = Promise.withResolvers<void>()
      waiting.push({ count, resolve })
      tell()
      return promise
    },
    release() {
      released.resolve()
      released = Promise.withResolvers<void>()
    },
    async open(name) {
      fake.opened.push(name)
      const formats = { formats: ['png'] } as const
      const engine: Engine = {
        offers: { image: formats, video: formats, music: formats },
        quote: amountsOf,
        async run(request, { signal, progress }) {
          signal.throwIfAborted()
          fake.runs.push(request)
          tell()
          const step = steps.shift() ?? 'make'
          if (step === 'throw') throw new Error('the secret of the provider')
          if (step === 'hang') await Promise.race([released.promise, aborted(signal)])
          if (typeof step === 'object' && 'progress' in step) for (const percent of step.progress) progress(percent)
          return typeof step === 'object' && 'fail' in step ? notMade(step.fail, step.retryable, new Error('as scripted')) : made(request)
        },
        async close() {
          if (!fake.closed.includes(name)) fake.closed.push(name)
        },
      }
      return engine
    },
  }

  function tell(): void {
    for (const { resolve } of waiting.filter(({ count }) => fake.runs.length >= count)) resolve()
  }

  return fake
}

function aborted(signal: AbortSignal): Promise<never> {
  const { promise, reject } = Promise.withResolvers<never>()
  signal.addEventListener('abort', () => reject(signal.reason), { once: true })
  return promise
}

/** An ENGINES file over one fake engine. */
export const FAKE_ENGINES = `\
engines:
  - { name: fake, type: fake }
routes:
  - { kind: image, engine: fake, price: { amount: "0.04", per: Job } }
  - { kind: video, engine: fake, price: { amount: "0.05", per: Second }, max: { seconds: 60 } }
  - { kind: music, engine: fake, price: { amount: "0.01", per: Second } }
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
