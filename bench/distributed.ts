/** The distributed side: the same work as on the embedded one, done by a process for each role over a MongoDB and a Kafka on the same cores. */
import { randomUUID } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { Role } from '../src/config/config.ts'
import { openSite, type Site } from '../test/flows/deployment.ts'
import { codingApart } from './distributed/coding.ts'
import { sweeping } from './distributed/sweeping.ts'
import { tasksApart } from './distributed/tasks.ts'
import type { Declared } from './plans.ts'
import type { Process } from './processes.ts'
import { lacking, openServers, type Servers } from './servers.ts'
import type { Choice, Stage } from './stage.ts'
import type { Table } from './table.ts'

/** What the parts of this side stand on. */
export type Apart = {
  stage: Stage
  servers: Servers
  /** Starts a program of these roles on an empty database; resolves when each gateway knows all keys. */
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

/** Answers nothing, after a line that says so, where the servers are not installed. */
export async function* distributed(stage: Stage, choice: Choice): AsyncGenerator<Table> {
  const missing = lacking()
  if (missing.length > 0) {
    process.stdout.write(`The distributed side was not measured: its servers are not installed, \`npm run servers ${missing.join(' ')}\` has them.\n\n`)
    return
  }
  const servers = await openServers()
  const site = openSite(servers)
  try {
    process.stdout.write(`The distributed side ran on ${servers.what}, on the same cores.\n\n`)
    const apart: Apart = { stage, servers, start: (...program) => start(stage, site, ...program) }
    yield await codingApart(apart, choice)
    yield* await tasksApart(apart, choice)
    yield await sweeping(apart, choice)
  } finally {
    await site.close()
    await servers.stop()
  }
}

async function start(stage: Stage, site: Site, declared: Declared, roles: readonly Role[], env: Record<string, string> = {}): Promise<Deployment> {
  const name = `apart-${randomUUID()}`
  const settings = { ...(await site.settings(`${stage.folder}/${name}`)), ...env }
  const processes = await stage.apart(name, { declared, roles, settings })
  const of = (role: Role) => processes.filter((_, n) => roles[n] === role)
  const keys = await Promise.all(Array.from({ length: declared.plans.length / 2 }, (_, n) => stage.key(name, n)))
  for (const { url } of of('gateway')) for (const key of keys) await known(url, key)
  return { of, keys, settings, stop: async () => void (await Promise.all(processes.map((one) => one.stop()))) }
}

/** A key is at the gateways a moment after its Secret is there. */
async function known(url: string, key: string): Promise<void> {
  const begunMs = performance.now()
  while ((await fetch(`${url}/v1/usage`, { headers: { authorization: `Bearer ${key}` } })).status === 401) {
    if (performance.now() - begunMs > LONGEST_KEY_MS) throw new Error('a key is not known to a gateway')
    await pause(50)
  }
}
