/** What is compared, side by side: the model, the bare pass-through to it, and Tollgate with everything on. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { start, type Process, type Program } from './processes.ts'

export type Stage = {
  folder: string
  /** Starts each in a process of its own; `close` stops those that still run. */
  model(): Promise<Process>
  passthrough(model: Process): Promise<Process>
  /** In its folder below `folder`; started there again, it finds what it left. `flags` are Node's. */
  tollgate(name: string, model: Process, flags?: string[]): Promise<Process>
  /** Tollgate with so many Media plans and the no-op engine; `slots` is WORKER_SLOTS. */
  studio(name: string, subscriptions: number, slots: string): Promise<Process>
  /** The API key of the n-th Coding or Media plan of a Tollgate. */
  key(name: string, n?: number): Promise<string>
  close(): Promise<void>
}

export type StageOptions = { logLevel: string; pin: boolean }

const LONGEST_KEY_MS = 10_000
const NOOP = join(import.meta.dirname, 'noop.ts')
const ENGINES = `\
engines:
  - { name: noop, type: noop }
routes:
  - { kind: image, engine: noop, price: { amount: "0.01", per: Job } }
`

/** Makes an empty folder for everything. Gateways are bound to the first core and the rest to the second, if `pin`. */
export async function openStage({ logLevel, pin }: StageOptions): Promise<Stage> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-bench-'))
  const running = new Set<Process>()
  const answersRoot = (port: number): string => `http://127.0.0.1:${port}/`
  const answersReady = (_port: number, opsPort: number): string => `http://127.0.0.1:${opsPort}/readyz`

  async function run(program: Omit<Program, 'folder' | 'output' | 'core'> & { name: string; core: number }): Promise<Process> {
    const home = join(folder, program.name)
    await mkdir(home, { recursive: true })
    const started = await start({ ...program, folder: home, output: join(home, 'output.log'), core: pin ? program.core : undefined })
    running.add(started)
    return { ...started, stop: () => started.stop().finally(() => running.delete(started)) }
  }

  async function declare(name: string, manifests: string[], files: Record<string, string>): Promise<void> {
    await mkdir(join(folder, name, 'plans'), { recursive: true })
    await writeFile(join(folder, name, 'plans/bench.yaml'), manifests.join('---\n'))
    for (const [file, text] of Object.entries(files)) await writeFile(join(folder, name, file), text)
  }

  return {
    folder,
    model: () => run({ name: 'model', script: 'bench/model.ts', env: {}, ready: answersRoot, core: 1 }),
    passthrough: (model) => run({ name: 'passthrough', script: 'bench/passthrough.ts', env: { MODEL_URL: model.url }, ready: answersRoot, core: 0 }),
    async tollgate(name, model, flags = []) {
      await declare(name, codingPlan(), { 'upstreams.yaml': upstreams(model.url) })
      return run({ name, script: 'bin/tollgate.mjs', flags, env: { UPSTREAMS: 'upstreams.yaml', LOG_LEVEL: logLevel }, ready: answersReady, core: 0 })
    },
    async studio(name, subscriptions, slots) {
      const plans = Array.from({ length: subscriptions }, (_, n) => mediaPlan(n)).flat()
      await declare(name, plans, { 'engines.yaml': ENGINES })
      return run({ name, script: 'bin/tollgate.mjs', env: { PLUGINS: NOOP, ENGINES: 'engines.yaml', WORKER_SLOTS: slots, LOG_LEVEL: logLevel }, ready: answersReady, core: 0 })
    },
    key: (name, n = 0) => appearing(join(folder, name, 'data/secrets/bench', `key-${n}`, 'api-key')),
    async close() {
      await Promise.all([...running].map((process) => process.stop()))
      await rm(folder, { recursive: true, force: true })
    },
  }
}

async function appearing(file: string): Promise<string> {
  const begunMs = performance.now()
  for (;;) {
    const text = await readFile(file, 'utf8').catch(() => null)
    if (text !== null) return text
    if (performance.now() - begunMs > LONGEST_KEY_MS) throw new Error(`there is no ${file}`)
    await pause(20)
  }
}

function upstreams(modelUrl: string): string {
  return `upstreams: [{name: bench, baseUrl: "${modelUrl}/v1", apiKey: bench-upstream-key, model: bench-model, wire: chat}]\n`
}

/** The largest plan that there can be: no limit is reached while it is measured, and every one is checked. */
function codingPlan(): string[] {
  const coding = 'sessionWindow: {tokens: 1000000000000}, weeklyWindow: {tokens: 1000000000000}, maxConcurrentRequests: 1000'
  return withKey(0, `product: Coding, requestsPerMinute: 1000000, coding: {${coding}}`)
}

function mediaPlan(n: number): string[] {
  return withKey(n, 'product: Media, requestsPerMinute: 1000000, media: {allowance: "1000000", maxConcurrentTasks: 100, maxQueuedTasks: 2000}')
}

function withKey(n: number, spec: string): string[] {
  return [
    `{apiVersion: tollgate.dev/v1alpha1, kind: Plan, metadata: {name: plan-${n}, namespace: bench}, spec: {${spec}}}\n`,
    `{apiVersion: tollgate.dev/v1alpha1, kind: ApiKey, metadata: {name: key-${n}, namespace: bench}, spec: {planRef: {name: plan-${n}}, secretName: key-${n}}}\n`,
  ]
}
