/** What chaos strikes: the program with everything embedded, or each of its processes and servers. */
import { startKafka } from '../servers/kafka.ts'
import { startMongodb } from '../servers/mongodb.ts'
import { openSite, type Site } from './deployment.ts'
import { start, type Process, type Program } from './program.ts'

export type System = {
  /** Where a client may call now; null while nothing serves. */
  program(): Pick<Program, 'url'> | null
  key: Program['key']
  /** Kills one thing without warning and starts it again; resolves to what it was. */
  strike(): Promise<string>
  /** Those that are there now, for their logs. */
  processes(): Process[]
  /** The settings with which `tollgate verify` finds the store. */
  settings: Record<string, string>
  /** Stops the program; the exit codes that are not 0. */
  stop(): Promise<string[]>
  close(): Promise<void>
}

/** `random` draws what is struck, from 0 up to 1. */
export type OpenSystem = (options: { folder: string; env: Record<string, string>; random: () => number }) => Promise<System>

export const openEmbedded: OpenSystem = async ({ folder, env }) => {
  let program = await start({ folder, env })
  let isUp = true
  return {
    program: () => (isUp ? program : null),
    key: (name) => program.key(name),
    processes: () => program.processes,
    async strike() {
      isUp = false
      await program.kill()
      program = await start({ folder, env })
      isUp = true
      return 'the program'
    },
    settings: program.env,
    async stop() {
      const { code, signal } = await program.stop()
      return code === 0 ? [] : [`the program: ${signal ?? code}`]
    },
    async close() {
      await program.kill()
    },
  }
}

/** Two of everything that may be there twice, and servers of its own. */
const ROLES = ['controller', 'gateway', 'gateway', 'worker', 'worker', 'dispatcher', 'dispatcher'] as const

export const openDistributed: OpenSystem = async ({ folder, env, random }) => {
  const [store, broker] = await Promise.all([startMongodb(), startKafka()])
  const servers = { MongoDB: store, Kafka: broker }
  const site: Site = openSite({ mongodb: store.url, brokers: broker.brokers })
  const stopServers = async () => void (await Promise.all([store.stop(), broker.stop()]))
  const program = await site.start({ folder, env, roles: ROLES }).catch(async (error: unknown) => {
    await stopServers()
    throw error
  })
  const processes: (Process | null)[] = [...program.processes]
  let calls = 0

  async function strikeProcess(index: number): Promise<string> {
    const dying = processes[index]
    if (!dying) throw new Error('it is struck already')
    processes[index] = null
    await dying.kill()
    // A gateway comes back where its clients call it.
    processes[index] = await site.join(folder, dying.role, { ...env, PORT: new URL(dying.url || program.url).port })
    return dying.role
  }

  return {
    program() {
      const gateways = processes.filter((one) => one?.role === 'gateway')
      return gateways[calls++ % gateways.length] ?? null
    },
    key: program.key,
    processes: () => processes.filter((one) => one !== null),
    async strike() {
      const index = Math.floor(random() * (processes.length + 2))
      if (index < processes.length) return strikeProcess(index)
      const [name, server] = index === processes.length ? (['MongoDB', servers.MongoDB] as const) : (['Kafka', servers.Kafka] as const)
      await server.kill()
      await server.start()
      return name
    },
    settings: await site.settings(folder),
    async stop() {
      const exits = await Promise.all(processes.map(async (one) => ({ role: one?.role, exit: await one?.stop() })))
      return exits.flatMap(({ role, exit }) => (exit?.code === 0 ? [] : [`${role}: ${exit?.signal ?? exit?.code}`]))
    },
    async close() {
      await Promise.all(processes.map((one) => one?.kill()))
      await stopServers()
    },
  }
}
