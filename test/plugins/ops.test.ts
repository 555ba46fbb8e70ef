/** Readiness checks by backend. */
import fastify, { type FastifyInstance } from 'fastify'
import pino from 'pino'
import { Registry } from 'prom-client'
import t, { type Test } from 'tap'
import { openOps } from '../../plugins/ops/ops-listener.ts'
import errors from '../../plugins/errors/errors.ts'
import ops from '../../plugins/ops/ops.ts'
import type { Role } from '../../src/config/needed-backends.ts'
import type { Broker } from '../../src/backends/broker/broker.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import type { Files } from '../../src/backends/files/files.ts'
import type { Store } from '../../src/backends/store/store.ts'

type Backends = { clock: () => Promise<number>; takeLease?: () => Promise<boolean>; broker?: Pick<Broker, 'health'>; files?: Pick<Files, 'stat'>; role?: Role }

/** The plugin over scripted backends, and its operations listener. */
async function openFor(t: Test, { clock, takeLease = async () => true, broker, files, role = 'worker' }: Backends) {
  const lines: string[] = []
  const log = pino({ level: 'warn' }, { write: (line) => void lines.push(line) })
  const app: FastifyInstance = fastify({ loggerInstance: log as FastifyInstance['log'] })
  const registry = new Registry()
  app.decorate('config', { TRUST_PROXY: [] as string[], ROLE: role } as FastifyInstance['config'])
  app.decorate('clock', () => 1_000_000)
  app.decorate('store', { clock, takeLease: takeLease as Store['takeLease'] } as Store)
  if (broker) app.decorate('broker', broker as Broker)
  if (files) app.decorate('files', files as Files)
  await app.register(errors)
  await app.register(ops, { registry })
  await app.ready()
  const listener = await openOps({ host: '127.0.0.1', port: 0, role: 'worker', log: app.log, checks: () => Promise.all(app.checks.map((check) => check())) })
  t.teardown(async () => {
    await listener.close()
    await app.close()
  })
  const readyz = async () => {
    const response = await fetch(`${listener.url}/readyz`)
    return { status: response.status, said: (await response.json()) as { status: string; checks: unknown[] } }
  }
  return { readyz, lines, metrics: () => listener.registry.metrics() }
}

const SAME = async () => 1_000_000
const away = () => Promise.reject(new Unavailable('store', new Error('connect ECONNREFUSED')))

t.test('readiness has one named check per backend of the role', async (t) => {
  const { readyz } = await openFor(t, { clock: SAME, broker: { health: () => ({ ok: true, detail: 'in this process' }) }, files: { stat: async () => null } })
  t.match(await readyz(), { status: 200, said: { status: 'ready', checks: [{ name: 'store', ok: true }, { name: 'broker', ok: true }, { name: 'files', ok: true }] } })
  const { readyz: alone } = await openFor(t, { clock: SAME })
  t.same((await alone()).said.checks, [{ name: 'store', ok: true, detail: 'it answers' }])
})

t.test('an unavailable store makes a process not ready, with the reason', async (t) => {
  const { readyz } = await openFor(t, { clock: away })
  t.match(await readyz(), { status: 503, said: { status: 'not ready', checks: [{ name: 'store', ok: false, detail: 'connect ECONNREFUSED' }] } })
})

t.test('a gateway that the store has answered stays ready without it, to answer 503, and says so', async (t) => {
  for (const role of ['gateway', 'all'] as const) {
    let clock = away
    const { readyz, metrics } = await openFor(t, { clock: () => clock(), role })
    t.match(await readyz(), { status: 503, said: { status: 'not ready', checks: [{ name: 'store', ok: false }] } }, 'not before the first answer')
    clock = SAME as typeof away
    t.match(await readyz(), { status: 200, said: { status: 'ready' } })
    clock = away
    t.match(await readyz(), { status: 200, said: { status: 'degraded', checks: [{ name: 'store', ok: true, degraded: true, detail: 'connect ECONNREFUSED; requests get 503 with Retry-After' }] } })
    t.match(await metrics(), 'tollgate_check_ok{check="store"} 0')
  }
})

t.test('any other process that loses the store is not ready', async (t) => {
  let clock = SAME as typeof away
  const { readyz } = await openFor(t, { clock: () => clock(), role: 'dispatcher' })
  t.equal((await readyz()).status, 200)
  clock = away
  t.equal((await readyz()).status, 503)
})

t.test('a store that cannot be written makes any process not ready, with the reason', async (t) => {
  for (const role of ['gateway', 'all', 'worker'] as const) {
    let takeLease = async () => true
    const { readyz, metrics } = await openFor(t, { clock: SAME, takeLease: () => takeLease(), role })
    t.equal((await readyz()).status, 200)
    takeLease = () => Promise.reject(new Unavailable('store', new Error('database or disk is full')))
    t.match(await readyz(), { status: 503, said: { status: 'not ready', checks: [{ name: 'store', ok: false, detail: 'it can be read, and not written: database or disk is full' }] } })
    t.match(await metrics(), 'tollgate_check_ok{check="store"} 0')
    takeLease = async () => true
    t.equal((await readyz()).status, 200)
  }
})

t.test('an unavailable broker or files backend is reported as degraded, and the process stays ready', async (t) => {
  const { readyz, metrics } = await openFor(t, { clock: SAME, broker: { health: () => ({ ok: false, detail: 'no broker' }) }, files: { stat: away } })
  t.match(await readyz(), { status: 200, said: { status: 'degraded', checks: [{ ok: true }, { name: 'broker', ok: true, degraded: true, detail: /^no broker; / }, { name: 'files', ok: true, degraded: true }] } })
  const text = await metrics()
  for (const line of ['tollgate_check_ok{check="store"} 1', 'tollgate_check_ok{check="broker"} 0', 'tollgate_check_ok{check="files"} 0']) t.match(text, line)
})
