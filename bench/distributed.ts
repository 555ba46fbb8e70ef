/** Benchmark of the distributed side: one process per role over MongoDB's protocol and Kafka on the same cores. */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Role } from '../src/config/needed-backends.ts'
import { openSite, type Site } from '../test/flows/deployment.ts'
import { distributedCoding } from './distributed/coding.ts'
import { sweeps } from './distributed/sweeps.ts'
import { onePlan } from './distributed/one-plan.ts'
import { distributedTasks } from './distributed/tasks.ts'
import { distributedWebhooks } from './distributed/webhooks.ts'
import type { Declared } from './manifests.ts'
import type { Process } from './processes.ts'
import { missingServers, openServers, type Servers } from './servers.ts'
import type { Choice, Stage } from './stage.ts'
import type { Table } from './table.ts'

/** Context of the parts of this benchmark. */
export type Distributed = {
  stage: Stage
  servers: Servers
  /** Starts one process per role on an empty database; resolves when each gateway accepts all keys. */
  start(declared: Declared, roles: readonly Role[], env?: Record<string, string>): Promise<Deployment>
}

export type Deployment = {
  of(role: Role): Process[]
  /** The API key of each plan. */
  keys: string[]
  settings: Record<string, string>
  /** Stops all processes. */
  stop(): Promise<void>
}

const LONGEST_KEY_MS = 30_000

type Part = (apart: Distributed, choice: Choice) => Promise<Table | Table[]>
const PARTS = { coding: distributedCoding, 'one-plan': onePlan, tasks: distributedTasks, webhooks: distributedWebhooks, sweeps }

/** Measures these parts. Yields nothing where the servers are not installed, and prints a line about it. */
export const distributed = (...parts: (keyof typeof PARTS)[]) => (stage: Stage, choice: Choice) => measure(stage, choice, parts.length > 0 ? parts.map((part) => PARTS[part]) : Object.values(PARTS))

async function* measure(stage: Stage, choice: Choice, parts: Part[]): AsyncGenerator<Table> {
  const missing = missingServers()
  if (missing.length > 0) {
    process.stdout.write(`The distributed side was skipped: its servers are not installed (\`npm run servers ${missing.join(' ')}\`).\n\n`)
    return
  }
  const servers = await openServers()
  const site = openSite(servers)
  try {
    process.stdout.write(`The distributed side ran on ${servers.what}, on the same cores.\n\n`)
    const apart: Distributed = { stage, servers, start: (...program) => start(stage, site, ...program) }
    for (const part of parts) yield* [await part(apart, choice)].flat()
  } finally {
    await site.close()
    await servers.stop()
  }
}

async function start(stage: Stage, site: Site, declared: Declared, roles: readonly Role[], env: Record<string, string> = {}): Promise<Deployment> {
  const name = `apart-${randomUUID()}`
  const settings = { ...(await site.settings(`${stage.folder}/${name}`)), ...env }
  const processes = await stage.distributed(name, { declared, roles, settings })
  const of = (role: Role) => processes.filter((_, n) => roles[n] === role)
  const keys = await Promise.all(Array.from({ length: declared.plans.length / 2 }, (_, n) => stage.key(name, n)))
  for (const { url } of of('gateway')) for (const key of keys) await known(url, key)
  return { of, keys, settings, stop: async () => void (await Promise.all(processes.map((one) => one.stop()))) }
}

/** Resolves when the gateway accepts the key, a moment after its Secret exists. */
async function known(url: string, key: string): Promise<void> {
  const begunMs = performance.now()
  while ((await fetch(`${url}/v1/usage`, { headers: { authorization: `Bearer ${key}` } })).status === 401) {
    if (performance.now() - begunMs > LONGEST_KEY_MS) throw new Error('a gateway does not accept a key')
    await pause(50)
  }
}
