/** A controller in the test's own process, with a store of its own, at work on a real API server. */
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fastify, { type FastifyInstance } from 'fastify'
import pino from 'pino'
import { Registry } from 'prom-client'
import type { Test } from 'tap'
import controller from '../../plugins/controller/controller.ts'
import { openKubernetes } from '../../src/backends/resources/kubernetes/kubernetes.ts'
import { openStore } from '../../src/backends/store/store.ts'
import { SEALING } from '../plugins/tenant.ts'

export type Started = {
  /** What its log has of trouble. */
  said(): string
  /** What /readyz shows. */
  shown(): Promise<string>
  close(): Promise<void>
}

/** Starts one that follows what `url` leads to. */
export async function startController(t: Test, url: string): Promise<Started> {
  const troubles: string[] = []
  const write = (line: string) => {
    const { msg, err } = JSON.parse(line)
    troubles.push(`${msg}: ${err?.message}`)
  }
  const log = pino({ level: 'warn' }, { write })
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const store = await openStore(`sqlite:${folder}/tollgate.db`)
  const resources = await openKubernetes({ url, dataDir: '', environment: {}, declarations: store, log })
  const app = fastify({ loggerInstance: log }) as unknown as FastifyInstance
  const parts = { clock: Date.now, store, resources, sealingKeys: SEALING, planLimits: null, engines: { offer: () => null }, config: { BRAND: 'SVC' }, metrics: { registry: new Registry() }, checks: [] }
  for (const [name, part] of Object.entries(parts)) app.decorate(name, part as never)
  await app.register(controller)
  await app.ready()
  let isClosed = false
  const close = async () => {
    if (isClosed) return
    isClosed = true
    await app.close()
    await resources.close()
    await store.close()
    await rm(folder, { recursive: true })
  }
  t.teardown(close)
  const shown = async () => (await Promise.all(app.checks.map((check) => check()))).map(({ detail }) => detail).join('\n')
  return { said: () => troubles.join('\n'), shown, close }
}
