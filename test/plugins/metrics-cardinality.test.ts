/** The number of series does not depend on the number of tenants. */
import type { FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import { Pool } from 'undici'
import { hashKey, mint } from '../../src/domain/api-keys.ts'
import { keyVersion, plan } from '../contracts/store/acme.ts'
import { openEmbeddedProgram } from './embedded-program.ts'
import { eventually } from '../flows/eventually.ts'

const TENANTS = 200
const FEW = 10
/** Tenants at once. */
const BATCH = 100

type Served = { tenant: string; key: string }

/** Gives tenants from `from` to `to` a Coding plan and a key. */
async function addTenants({ store, clock }: FastifyInstance, from: number, to: number): Promise<Served[]> {
  return Promise.all(
    Array.from({ length: to - from }, async (_, i) => {
      const tenant = `tenant-${from + i}`
      const key = mint('svc', Buffer.alloc(32, `${from + i}.`))
      await store.change(`${tenant}/code`, plan(), clock())
      await store.mintKey(keyVersion(tenant, 0, { tenant, subscription: `${tenant}/code`, product: 'Coding', hash: hashKey(key), state: 'active' }))
      return { tenant, key }
    }),
  )
}

/** A request of every kind that a tenant can name something in: a model call, unknown ids, paths and methods, and a wrong key. */
async function serve(app: FastifyInstance, gateway: Pool, { tenant, key }: Served): Promise<number> {
  const as = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
  const { statusCode, body } = await gateway.request({ method: 'POST', path: '/v1/chat/completions', headers: as, body: JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: tenant }], max_tokens: 1 }) })
  await body.dump()
  await app.inject({ method: 'GET', url: `/v1/models/${tenant}`, headers: as })
  await app.inject({ method: 'GET', url: `/api/v1/generations/${tenant}`, headers: { authorization: `Bearer ${tenant}` } })
  await app.inject({ method: 'GET', url: `/${tenant}?of=${tenant}` })
  return statusCode
}

async function seriesOf(app: FastifyInstance): Promise<string[]> {
  const text = await app.metrics.registry.metrics()
  // Garbage collections are of the process, and timers call further verbs of the store meanwhile.
  return text.split('\n').filter((line) => /^(tollgate_(?!store_|files_)|controller|workqueue)/.test(line))
}

/** The series after ten tenants and after `count`. */
async function seriesOfTenants(t: Test, app: FastifyInstance, count: number): Promise<[few: string[], many: string[]]> {
  const gateway = new Pool(await app.listen({ host: '127.0.0.1', port: 0 }), { connections: 32 })
  t.teardown(() => gateway.close())
  const serveAll = async (from: number, to: number) => {
    for (let start = from; start < to; start += BATCH) {
      const tenants = await addTenants(app, start, Math.min(to, start + BATCH))
      const codes = await Promise.all(tenants.map((tenant) => serve(app, gateway, tenant)))
      if (codes.some((code) => code !== 200)) throw new Error(`a request of a tenant got ${codes.find((code) => code !== 200)}`)
    }
    // Tokens are counted when a request is settled, after its answer.
    return eventually('the settlements', async () => {
      const series = await seriesOf(app)
      return series.includes('tollgate_reservations_open 0') ? series : null
    })
  }
  return [await serveAll(0, FEW), await serveAll(FEW, count)]
}

const nameOf = (line: string) => line.slice(0, line.lastIndexOf(' '))

t.test('two hundred tenants have the series of ten', async (t) => {
  const { app } = await openEmbeddedProgram(t)
  const [few, many] = await seriesOfTenants(t, app, TENANTS)
  t.same(many.map(nameOf).filter((name) => /tenant/.test(name)), [])
  t.ok(few.length > 100)
  t.same(many.map(nameOf).sort(), few.map(nameOf).sort())
})

t.test('METRICS_TENANT adds three series per tenant that used tokens, and nothing else', async (t) => {
  const { app } = await openEmbeddedProgram(t, { env: { METRICS_TENANT: 'true' } })
  const [few, many] = await seriesOfTenants(t, app, 10 * FEW)
  t.equal(many.length - few.length, 3 * 9 * FEW)
})
