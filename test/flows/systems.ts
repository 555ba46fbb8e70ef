/** Targets of the chaos test: the embedded program, or each process and server of a distributed one. */
import { startKafka } from '../servers/kafka.ts'
import { startMongodb } from '../servers/mongodb.ts'
import { openSite, type Site } from './deployment.ts'
import { start, type Process, type Program } from './program.ts'

export type System = {
  /** A serving gateway; null while there is none. */
  program(): Pick<Program, 'url'> | null
  key: Program['key']
  /** Kills one process or server and restarts it; resolves to its name. */
  strike(): Promise<string>
  /** The current processes, for their logs. */
  processes(): Process[]
  /** The settings of `tollgate verify`. */
  settings: Record<string, string>
  /** Stops the program; returns the exit codes other than 0. */
  stop(): Promise<string[]>
  close(): Promise<void>
}

/** `random` chooses the target, from 0 up to 1. */
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

/** Two processes of every role that may run twice, and private servers. */
const ROLES = ['controller', 'gateway', 'gateway', 'worker', 'worker', 'dispatcher', 'dispatcher'] as const

const MOST_STARTS = 5

/** Restarts processes like a supervisor. A controller that could not renew its lease in time exits by itself, as it must. */
export async function persistently<T>(start: () => Promise<T>): Promise<T> {
  for (let tries = 1; ; tries++) {
    try {
      return await start()
    } catch (error) {
      if (tries === MOST_STARTS) throw error
    }
  }
}

function isAlive({ pid }: Process): boolean {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}

export const openDistributed: OpenSystem = async ({ folder, env, random }) => {
  const [store, broker] = await Promise.all([startMongodb(), startKafka()])
  const servers = { MongoDB: store, Kafka: broker }
  const site: Site = openSite({ mongodb: store.url, brokers: broker.brokers })
  const stopServers = async () => void (await Promise.all([store.stop(), broker.stop()]))
  const program = await persistently(() => site.start({ folder, env, roles: ROLES })).catch(async (error: unknown) => {
    await stopServers()
    throw error
  })
  const processes: (Process | null)[] = [...program.processes]
  let calls = 0

  async function revive(index: number, dead: Process): Promise<void> {
    processes[index] = null
    // A gateway restarts at its address.
    const port = new URL(dead.url || program.url).port
    processes[index] = await persistently(() => site.join(folder, dead.role, { ...env, PORT: port }))
  }

  async function reviveAll(): Promise<void> {
    await Promise.all(processes.map((one, index) => (one && !isAlive(one) ? revive(index, one) : null)))
  }

  async function strikeProcess(index: number): Promise<string> {
    const dying = processes[index]
    if (!dying) throw new Error('it is being killed already')
    processes[index] = null
    await dying.kill()
    await revive(index, dying)
    return dying.role
  }

  return {
    program() {
      const gateways = processes.filter((one) => one?.role === 'gateway' && isAlive(one))
      return gateways[calls++ % gateways.length] ?? null
    },
    key: program.key,
    processes: () => processes.filter((one) => one !== null),
    async strike() {
      await reviveAll()
      const index = Math.floor(random() * (processes.length + 2))
      if (index < processes.length) return strikeProcess(index)
      const [name, server] = index === processes.length ? (['MongoDB', servers.MongoDB] as const) : (['Kafka', servers.Kafka] as const)
      await server.kill()
      await server.start()
      return name
    },
    settings: await site.settings(folder),
    async stop() {
      await reviveAll()
      const exits = await Promise.all(processes.map(async (one) => ({ role: one?.role, exit: await one?.stop() })))
      return exits.flatMap(({ role, exit }) => (exit?.code === 0 ? [] : [`${role}: ${exit?.signal ?? exit?.code}`]))
    },
    async close() {
      await Promise.all(processes.map((one) => one?.kill()))
      await stopServers()
    },
  }
}
