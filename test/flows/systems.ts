/** Systems of the chaos test: the embedded program, or a distributed one with private servers. */
import { setTimeout as pause } from 'node:timers/promises'
import { FATES, openReplicaSet } from '../fakes/replica-set.ts'
import { startKafka } from '../servers/kafka.ts'
import { startMongodb } from '../servers/mongodb.ts'
import type { Server } from '../servers/server.ts'
import { openSite, type Site } from './deployment.ts'
import { start, type Process, type Program } from './program.ts'

/** A process or server that can be killed and frozen; both resolve when it runs again. */
export type Target = {
  name: string
  /** SIGKILL and a restart. */
  kill(): Promise<void>
  /** SIGSTOP, and SIGCONT after `forMs`. */
  freeze(forMs: number): Promise<void>
}

export type System = {
  /** A serving gateway; null while there is none. */
  program(): Pick<Program, 'url'> | null
  key: Program['key']
  targets: readonly Target[]
  /** The log lines of all processes, also of those that have ended, which contain `text`. */
  logOf(text: string): string[]
  /** The settings of `tollgate verify`. */
  settings: Record<string, string>
  /** Stops the program; returns the exit codes other than 0. */
  stop(): Promise<string[]>
  close(): Promise<void>
}

/** `random` chooses one of several processes of a role, from 0 up to 1. */
export type OpenSystem = (options: { folder: string; env: Record<string, string>; random: () => number }) => Promise<System>

export const openEmbedded: OpenSystem = async ({ folder, env }) => {
  let program = await start({ folder, env })
  const logs = [program.log]
  let isUp = true
  return {
    program: () => (isUp ? program : null),
    key: (name) => program.key(name),
    targets: [
      {
        name: 'the program',
        async kill() {
          isUp = false
          await program.kill()
          program = await start({ folder, env })
          logs.push(program.log)
          isUp = true
        },
        freeze: (forMs) => freezeProcess(program.processes[0], forMs),
      },
    ],
    logOf: (text) => linesWith(logs, text),
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

function linesWith(logs: readonly string[][], text: string): string[] {
  return logs.flat().filter((line) => line.includes(text))
}

async function freezeProcess(frozen: Process | null | undefined, forMs: number): Promise<void> {
  if (!frozen) throw new Error('no process runs')
  process.kill(frozen.pid, 'SIGSTOP')
  await pause(forMs)
  process.kill(frozen.pid, 'SIGCONT')
}

/** Two processes of every role that may run twice, and private servers. */
const ROLES = ['controller', 'gateway', 'gateway', 'worker', 'worker', 'dispatcher', 'dispatcher'] as const

const MOST_STARTS = 5
const MAX_ELECTION_SECONDS = 8
/** One of so many commands is struck. */
const STRUCK = 12

/** Repeats a start, like a supervisor. A controller that could not renew its lease in time exits by itself, as it must. */
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
  const set = await openReplicaSet(store.url)
  const site: Site = openSite({ mongodb: set.url, brokers: broker.brokers })
  const stopServers = async () => void (await Promise.all([set.close(), store.stop(), broker.stop()]))
  const program = await persistently(() => site.start({ folder, env, roles: ROLES })).catch(async (error: unknown) => {
    await stopServers()
    throw error
  })
  const processes: (Process | null)[] = [...program.processes]
  const logs = program.processes.map(({ log }) => log)
  let calls = 0

  async function revive(index: number, dead: Process): Promise<void> {
    processes[index] = null
    // A gateway restarts at its address.
    const port = new URL(dead.url || program.url).port
    const revived = await persistently(() => site.join(folder, dead.role, { ...env, PORT: port }))
    processes[index] = revived
    logs.push(revived.log)
  }

  async function reviveAll(): Promise<void> {
    await Promise.all(processes.map((one, index) => (one && !isAlive(one) ? revive(index, one) : null)))
  }

  /** The index of a process of this role. */
  async function pick(role: Process['role']): Promise<number> {
    await reviveAll()
    const some = processes.flatMap((one, index) => (one?.role === role ? [index] : []))
    return some[Math.floor(random() * some.length)] ?? -1
  }

  const roleTarget = (role: Process['role']): Target => ({
    name: role,
    async kill() {
      const index = await pick(role)
      const dying = processes[index]
      if (!dying) throw new Error(`no ${role} runs`)
      processes[index] = null
      await dying.kill()
      await revive(index, dying)
    },
    freeze: async (forMs) => freezeProcess(processes[await pick(role)], forMs),
  })

  const serverTarget = (name: string, server: Server): Target => ({
    name,
    async kill() {
      await reviveAll()
      await server.kill()
      await server.start()
    },
    async freeze(forMs) {
      await reviveAll()
      await server.freeze()
      await pause(forMs)
      server.thaw()
    },
  })

  /** Its end is a failover; frozen, it is a network that loses, repeats, delays and holds up commands. */
  const primary: Target = {
    name: 'the primary',
    async kill() {
      await reviveAll()
      await set.stepDown(1 + Math.floor(random() * MAX_ELECTION_SECONDS))
    },
    async freeze(forMs) {
      set.decide(() => (random() < 1 / STRUCK ? (FATES[Math.floor(random() * FATES.length)] ?? 'passes') : 'passes'))
      await pause(forMs)
      set.decide(() => 'passes')
    },
  }

  return {
    program() {
      const gateways = processes.filter((one) => one?.role === 'gateway' && isAlive(one))
      return gateways[calls++ % gateways.length] ?? null
    },
    key: program.key,
    targets: [...new Set(ROLES)].map(roleTarget).concat(serverTarget('MongoDB', store), primary, serverTarget('Kafka', broker)),
    logOf: (text) => linesWith(logs, text),
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
