/** Starts a distributed deployment: one process per role over shared MongoDB and Kafka. */
import { randomBytes, randomUUID } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { Kafka, logLevel } from 'kafkajs'
import { MongoClient } from 'mongodb'
import type { Test } from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import { DEFAULT_ENGINES } from '../../src/backends/engines/engines-file.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { freePort } from '../servers/process.ts'
import { folderFor } from '../temporary-folder.ts'
import { startProcess, whole, type Exit, type Process, type Program } from './program.ts'

/** Addresses of the servers: MongoDB's without a database name, Kafka's as host:port. */
export type Servers = { mongodb: string; brokers: string }

/** Private databases and topics on those servers. */
export type Site = {
  /** The settings of every role, also for `tollgate verify` and additional processes. Fixed per folder: a restart finds its data. */
  settings(folder: string): Promise<Record<string, string>>
  /** Starts these roles; a role may occur several times. The program's `url` is that of the first gateway. */
  start(options: { folder: string; env?: Record<string, string>; roles?: readonly Role[] }): Promise<Program>
  /** Starts an additional process of a program, or restarts one at its address. `root`: the root of the program; this checkout if absent. */
  join(folder: string, role: Role, env?: Record<string, string>, root?: string): Promise<Process>
  /** Drops every created database and topic. */
  close(): Promise<void>
}

export const ROLES_APART = ['controller', 'gateway', 'worker', 'dispatcher'] as const satisfies Role[]

const ECHO = 'upstreams: [{ name: echo, baseUrl: "echo:", wire: both }]\n'

/** A site on the shared servers, and a folder, for the duration of the test. Null, with the test skipped, where the servers are not installed. */
export async function siteFor(t: Test): Promise<{ site: Site; folder: string } | null> {
  const [store, brokers] = [await mongodb(t), await kafka(t)]
  if (store === null || brokers === null) return null
  const folder = await folderFor(t)
  const site = openSite({ mongodb: store, brokers })
  t.teardown(() => site.close())
  return { site, folder }
}

export function openSite({ mongodb, brokers }: Servers): Site {
  const places = new Map<string, Promise<{ name: string; settings: Record<string, string> }>>()

  async function make(folder: string): Promise<{ name: string; settings: Record<string, string> }> {
    const name = `flow-${randomUUID()}`
    const file = (of: string) => join(folder, of)
    await mkdir(folder, { recursive: true })
    await writeFile(file('sealing.key'), `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 })
    await writeFile(file('engines.yaml'), DEFAULT_ENGINES)
    if (!existsSync(file('upstreams.yaml'))) await writeFile(file('upstreams.yaml'), ECHO)
    const port = await freePort()
    const settings = {
      STORE_URL: databaseUrl(mongodb, name),
      BROKER_URL: `kafka://${brokers}?topicPrefix=${name}.&partitions=2`,
      FILES_URL: 'gridfs:',
      SEALING_KEY_FILE: file('sealing.key'),
      UPSTREAMS: file('upstreams.yaml'),
      ENGINES: file('engines.yaml'),
      PORT: String(port),
      PUBLIC_URL: `http://127.0.0.1:${port}`,
    }
    return { name, settings }
  }

  const placeOf = (folder: string) => {
    const known = places.get(folder) ?? make(folder)
    places.set(folder, known)
    return known
  }

  async function joinAs(folder: string, role: Role, env: Record<string, string> = {}, root?: string): Promise<Process> {
    const { settings } = await placeOf(folder)
    return startProcess({ folder, role, env: { ...settings, ...env }, ...(root === undefined ? {} : { root }) })
  }

  return {
    settings: async (folder) => (await placeOf(folder)).settings,
    join: joinAs,
    async start({ folder, env = {}, roles = ROLES_APART }) {
      // Only the first gateway has the known address.
      const isFirst = (role: Role, index: number) => role !== 'gateway' || roles.indexOf('gateway') === index
      const envOf = async (role: Role, index: number) => (isFirst(role, index) ? env : { ...env, PORT: String(await freePort()) })
      const started = await Promise.allSettled(roles.map(async (role, index) => joinAs(folder, role, await envOf(role, index))))
      const processes = started.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
      const failed = started.find((one) => one.status === 'rejected')
      if (!failed) return programOf(processes, folder)
      await Promise.all(processes.map((one) => one.kill()))
      throw failed.reason
    },
    async close() {
      const names = await Promise.all([...places.values()].map(async (place) => (await place).name))
      if (names.length > 0) await Promise.all([dropDatabases(mongodb, names), dropTopics(brokers, names)])
    },
  }
}

function programOf(processes: Process[], folder: string): Program {
  const front = processes.find(({ role }) => role === 'gateway') ?? processes[0]
  if (!front) throw new Error('a program has at least one process')
  const each = async (end: (one: Process) => Promise<Exit>): Promise<Exit> => {
    const exits = await Promise.all(processes.map(end))
    return exits.find(({ code }) => code !== 0) ?? { code: 0, signal: null }
  }
  const { url, opsUrl, env } = front
  return {
    url,
    opsUrl,
    env,
    get log() {
      return processes.flatMap(({ log }) => log)
    },
    stop: () => each((one) => one.stop()),
    kill: () => each((one) => one.kill()),
    ...whole(processes, join(folder, 'data')),
  }
}

function databaseUrl(server: string, name: string): string {
  const [base = '', query] = server.split('?')
  return `${base.replace(/\/$/, '')}/${name}${query === undefined ? '' : `?${query}`}`
}

async function dropDatabases(url: string, names: string[]): Promise<void> {
  const client = await new MongoClient(url).connect()
  for (const name of names) await client.db(name).dropDatabase()
  await client.close()
}

async function dropTopics(brokers: string, names: string[]): Promise<void> {
  const admin = new Kafka({ brokers: brokers.split(','), logLevel: logLevel.NOTHING }).admin()
  await admin.connect()
  const topics = (await admin.listTopics()).filter((topic) => names.some((name) => topic.startsWith(name)))
  if (topics.length > 0) await admin.deleteTopics({ topics })
  await admin.disconnect()
}
