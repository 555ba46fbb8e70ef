/** Programs of the benchmarks: the fake model, the pass-through, and Tollgate. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Role } from '../src/config/needed-backends.ts'
import { coding, media, tenant, type Declared } from './manifests.ts'
import { start, type Process, type Program } from './processes.ts'

export type Stage = {
  folder: string
  /** Each program is a separate process; `close` stops those that still run. */
  model(): Promise<Process>
  passthrough(model: Process): Promise<Process>
  /** Tollgate with its data in `name` below `folder`, which it finds again when it is restarted. `flags` are Node's; `plans` is the number of Coding plans (1), `wire` what the model is declared to speak (chat), `root` another checkout to run. */
  tollgate(name: string, model: Process, options?: { flags?: string[]; plans?: number; wire?: 'chat' | 'both'; root?: string | null }): Promise<Process>
  /** Tollgate with so many Media plans, the no-op engine and webhooks to loopback; `slots` is WORKER_SLOTS. */
  studio(name: string, subscriptions: number, slots: string, flags?: string[]): Promise<Process>
  /** Tollgate with a Media plan and the engines of a fresh checkout. */
  fresh(name: string): Promise<Process>
  /** One process for each of these roles, over the servers whose addresses are in `settings`. */
  distributed(name: string, options: { declared: Declared; roles: readonly Role[]; settings: Record<string, string>; flags?: string[] }): Promise<Process[]>
  /** The API key of the n-th plan of a Tollgate. */
  key(name: string, n?: number): Promise<string>
  close(): Promise<void>
}

/** Size of the run: rounds, seconds of a burst, finished tasks in the store, ApiKeys, whether admission adds their finalizers, the coding workloads whose name has this text, and another checkout to compare with. */
export type Choice = { rounds: number; seconds: number; finished: number; keys: number; finalizerPolicy: boolean; workloads: string; against: string | null }

export type StageOptions = { logLevel: string; pin: boolean }

const LONGEST_KEY_MS = 10_000
const NOOP = join(import.meta.dirname, 'noop.ts')

/** Creates a temporary folder for all programs. With `pin`, gateways are bound to the first core and the rest to the second. */
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

  async function declare(name: string, { plans, files }: Declared): Promise<void> {
    await mkdir(join(folder, name, 'plans'), { recursive: true })
    await writeFile(join(folder, name, 'plans/bench.yaml'), plans.join('---\n'))
    for (const [file, text] of Object.entries(files)) await writeFile(join(folder, name, file), text)
  }

  return {
    folder,
    model: () => run({ name: 'model', script: 'bench/model.ts', env: {}, ready: answersRoot, core: 1 }),
    passthrough: (model) => run({ name: 'passthrough', script: 'bench/passthrough.ts', env: { MODEL_URL: model.url }, ready: answersRoot, core: 0 }),
    async tollgate(name, model, { flags = [], plans = 1, wire = 'chat', root = null } = {}) {
      await declare(name, coding(plans, model.url, wire))
      return run({ name, script: 'bin/tollgate.mjs', root, flags, env: { UPSTREAMS: 'upstreams.yaml', LOG_LEVEL: logLevel }, ready: answersReady, core: 0 })
    },
    async studio(name, subscriptions, slots, flags = []) {
      await declare(name, media(subscriptions))
      return run({ name, script: 'bin/tollgate.mjs', flags, env: { PLUGINS: NOOP, ENGINES: 'engines.yaml', WORKER_SLOTS: slots, EGRESS_ALLOW: '127.0.0.1', LOG_LEVEL: logLevel }, ready: answersReady, core: 0 })
    },
    async fresh(name) {
      await declare(name, media(1))
      return run({ name, script: 'bin/tollgate.mjs', env: { LOG_LEVEL: logLevel }, ready: answersReady, core: 0 })
    },
    async distributed(name, { declared, roles, settings, flags = [] }) {
      await declare(name, declared)
      const env = { ...settings, LOG_LEVEL: logLevel }
      return Promise.all(roles.map((role) => run({ name, script: 'bin/tollgate.mjs', flags, args: [role], env, ready: answersReady, core: 0 })))
    },
    key: (name, n = 0) => appearing(join(folder, name, 'data/secrets', tenant(n), 'key/api-key')),
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
