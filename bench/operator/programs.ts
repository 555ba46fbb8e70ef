/** Programs of the operator benchmark: the plain loop, Tollgate in one process over SQLite, or one process per role over MongoDB's protocol. */
import { randomBytes, randomUUID } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Role } from '../../src/config/needed-backends.ts'
import { DEFAULT_ENGINES } from '../../src/backends/engines/engines-file.ts'
import { start, type Process } from '../processes.ts'
import type { Stage } from '../stage.ts'

export type Programs = {
  /** Starts a controller, an additional one where one is running. */
  controller(): Promise<Process>
  /** URL of the gateway; null for the plain loop. */
  gateway: () => string | null
  close(): Promise<void>
}

const LONGEST_MS = 300_000

export async function openNaive(stage: Stage, kubeconfig: string): Promise<Programs> {
  const folder = join(stage.folder, 'naive')
  await mkdir(folder, { recursive: true })
  const running: Process[] = []
  return {
    async controller() {
      const process = await start({ script: 'bench/operator/naive.ts', env: { KUBECONFIG: kubeconfig, ...inheritedOptions() }, output: join(folder, 'output.log'), folder, ready: (port) => `http://127.0.0.1:${port}/` })
      running.push(process)
      return process
    },
    gateway: () => null,
    close: () => stopped(running),
  }
}

/** All roles in one process. */
export async function openEmbedded(stage: Stage, kubeconfig: string, model: Process): Promise<Programs> {
  return openTollgate(stage, 'embedded', model, { RESOURCES_URL: `kubernetes:?kubeconfig=${kubeconfig}` }, null)
}

/** Separate controllers and a gateway. The broker is unreachable: this benchmark creates no task. */
export async function openSeparate(stage: Stage, kubeconfig: string, model: Process, mongodb: string): Promise<Programs> {
  await writeFile(join(stage.folder, 'sealing.key'), `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 })
  await writeFile(join(stage.folder, 'engines.yaml'), DEFAULT_ENGINES)
  const settings = {
    RESOURCES_URL: `kubernetes:?kubeconfig=${kubeconfig}`,
    STORE_URL: `${mongodb.replace(/\/$/, '')}/bench-${randomUUID()}`,
    BROKER_URL: 'kafka://127.0.0.1:9',
    FILES_URL: 'gridfs:',
    SEALING_KEY_FILE: join(stage.folder, 'sealing.key'),
    ENGINES: join(stage.folder, 'engines.yaml'),
    PUBLIC_URL: 'http://127.0.0.1:8080',
  }
  return openTollgate(stage, 'apart', model, settings, 'gateway')
}

async function openTollgate(stage: Stage, name: string, model: Process, given: Record<string, string>, front: Role | null): Promise<Programs> {
  const upstreams = `upstreams: [{name: bench, baseUrl: "${model.url}/v1", apiKey: bench-upstream-key, model: bench-model, wire: chat}]\n`
  const declared = { plans: [], files: { 'upstreams.yaml': upstreams } }
  const settings = { UPSTREAMS: 'upstreams.yaml', ...given, ...inheritedOptions() }
  const running: Process[] = []
  async function run(role: Role): Promise<Process> {
    const [process] = await stage.distributed(name, { declared, roles: [role], settings })
    if (!process) throw new Error(`no ${role} was started`)
    running.push(process)
    return process
  }
  const gateway = front && (await run(front))
  return {
    controller: () => run(front ? 'controller' : 'all'),
    gateway: () => (gateway ?? running.at(-1))?.url ?? null,
    close: () => stopped(running),
  }
}

/** Passes NODE_OPTIONS on, so that `NODE_OPTIONS=--cpu-prof npm run bench -- --parts operator` profiles the measured programs. */
function inheritedOptions(): Record<string, string> {
  const options = process.env['NODE_OPTIONS']
  return options ? { NODE_OPTIONS: options } : {}
}

async function stopped(running: Process[]): Promise<void> {
  await Promise.all(running.map((process) => process.stop()))
}

/** Resolves when the first full reconciliation is complete. */
export async function settled({ opsUrl }: Process): Promise<void> {
  const sinceMs = performance.now()
  for (;;) {
    const { checks } = (await (await fetch(`${opsUrl}/readyz`)).json()) as { checks: { name: string; detail: string }[] }
    if (checks.some(({ name, detail }) => name === 'controller' && detail === '0 plans and 0 keys queued')) return
    if (performance.now() - sinceMs > LONGEST_MS) throw new Error(`the first full reconciliation is not complete: ${JSON.stringify(checks)}`)
    await pause(20)
  }
}

/** From the metrics of the process: writes to the API server by method, and whether this process leads. */
export async function figuresOf({ opsUrl }: Process): Promise<{ writes: Record<string, number>; isLeading: boolean }> {
  const text = await (await fetch(`${opsUrl}/metrics`)).text()
  const writes: Record<string, number> = {}
  for (const [, labels = '', value] of text.matchAll(/^rest_client_requests_total\{([^}]*)\} (\d+)/gm)) {
    const method = /method="(\w+)"/.exec(labels)?.[1] ?? ''
    if (method !== 'GET') writes[method] = (writes[method] ?? 0) + Number(value)
  }
  return { writes, isLeading: /^leader_election_master_status\{[^}]*\} 1$/m.test(text) }
}
