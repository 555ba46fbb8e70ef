/** A deployment whose processes are replaced one after the other while the rest serves, as in a rolling update. */
import { join } from 'node:path'
import type { Test } from 'tap'
import type { Role } from '../../src/config/needed-backends.ts'
import type { Caller } from '../flows/calls.ts'
import type { Site } from '../flows/deployment.ts'
import { whole, type Process, type Program } from '../flows/program.ts'
import { persistently } from '../flows/systems.ts'
import { freePort } from '../servers/process.ts'

export type Fleet = {
  /** A load balancer: its `url` is by turns that of each ready gateway. */
  balancer: Caller
  key: Program['key']
  /** Replaces every process: gateways one by one, the other roles meanwhile. Rejects when a process does not stop cleanly. */
  replaceAll(): Promise<void>
}

const ROLES = ['controller', 'gateway', 'gateway', 'worker', 'dispatcher'] as const

/** A stopping gateway serves requests that were sent before it left the load balancer. */
const DRAIN = { DRAIN_DELAY_SECONDS: '3', SHUTDOWN_SECONDS: '120' }

/** Starts two gateways and one process of each other role, with the settings of `envOf`. They end with the test. */
export async function openFleet(t: Test, { site, folder, envOf }: { site: Site; folder: string; envOf: (role: Role) => Record<string, string> }): Promise<Fleet> {
  const processes = new Set<Process>()
  const ready: Process[] = []
  let calls = 0
  t.teardown(() => Promise.all([...processes].map((one) => one.kill())))

  async function start(role: Role, port: string): Promise<void> {
    const one = await persistently(() => site.join(folder, role, { ...envOf(role), ...DRAIN, PORT: port }))
    processes.add(one)
    if (role === 'gateway') ready.push(one)
  }

  async function replace(one: Process): Promise<void> {
    if (one.role === 'gateway') ready.splice(ready.indexOf(one), 1)
    const { code, signal } = await one.stop()
    processes.delete(one)
    // A controller that cannot renew its lease in time ends with exit code 1.
    if (code !== 0 && one.role !== 'controller') throw new Error(`the ${one.role} stopped with ${signal ?? code}:\n${one.log.slice(-5).join('\n')}`)
    await start(one.role, one.url === '' ? '0' : new URL(one.url).port)
  }

  const ports = [(await site.settings(folder))['PORT'] ?? '', String(await freePort())]
  await Promise.all(ROLES.map((role) => start(role, role === 'gateway' ? (ports.pop() ?? '') : '0')))
  return {
    balancer: {
      get url() {
        const gateway = ready[calls++ % ready.length]
        if (!gateway) throw new Error('no gateway is ready')
        return gateway.url
      },
    },
    key: whole([...ready], join(folder, 'data')).key,
    async replaceAll() {
      const all = [...processes]
      const others = Promise.all(all.filter(({ role }) => role !== 'gateway').map((one) => replace(one)))
      for (const one of all.filter(({ role }) => role === 'gateway')) await replace(one)
      await others
    },
  }
}
