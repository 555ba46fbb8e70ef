/** The newest coding requests of a plan, as gateways write them. */
import t, { type Test } from 'tap'
import type { FastifyInstance } from 'fastify'
import type { CodingRequest } from '../../src/domain/coding-requests.ts'
import { eventually } from '../flows/eventually.ts'
import { openEmbeddedProgram } from './embedded-program.ts'

const BODY = JSON.stringify({ model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] })

/** A program whose store is seen by `before`, and a coding request of it. */
async function openProgram(t: Test, before: (app: FastifyInstance) => void) {
  const { app, key } = await openEmbeddedProgram(t, { before, isHasty: true })
  const address = await app.listen({ host: '127.0.0.1', port: 0 })
  const headers = { authorization: `Bearer ${await key('demo-coding-key')}`, 'content-type': 'application/json' }
  return { app, chat: async () => (await fetch(`${address}/v1/chat/completions`, { method: 'POST', headers, body: BODY })).text() }
}

t.test('a request that is settled while its gateway stops is in the history', async (t) => {
  const stopping = Promise.withResolvers<void>()
  const written: CodingRequest[] = []
  let isHooked = false
  const { app, chat } = await openProgram(t, (app) => {
    const { change, decideNow, logRequests } = app.store
    app.store.decideNow = (subscription, command, ...rest) => (command.op === 'settle' ? null : decideNow(subscription, command, ...rest))
    app.store.change = async (subscription, command, ...rest) => {
      if (command.op === 'settle') await stopping.promise
      return change(subscription, command, ...rest)
    }
    app.store.logRequests = async (requests) => {
      await logRequests(requests)
      written.push(...requests)
    }
    // Plugins end in reverse order: this runs after what was registered behind the coding routes, and before metering and the history.
    app.addHook('onRoute', ({ config }) => {
      if (!isHooked && config?.admits) app.addHook('onClose', async () => void setImmediate(stopping.resolve))
      isHooked ||= config?.admits !== undefined
    })
  })
  await chat()
  await app.close()
  t.match(written, [{ subscription: 'demo/coder', status: 200, isComplete: true, charged: Number }])
})

t.test('what could not be written is written later, once', async (t) => {
  const failures: string[] = []
  const { app, chat } = await openProgram(t, (app) => {
    const { logRequests } = app.store
    app.store.logRequests = async (requests) => {
      if (failures.length > 0) return logRequests(requests)
      failures.push(...requests.map(({ id }) => id))
      throw new Error('away')
    }
  })
  await chat()
  const found = await eventually('the request', async () => {
    const requests = await app.store.requests('demo/coder', null, 10)
    return requests.length > 0 ? requests : null
  })
  t.same(found.map(({ id }) => id), failures)
})

t.test('what could not be written is written when its gateway stops', async (t) => {
  const failed = Promise.withResolvers<void>()
  let isStopping = false
  const written: CodingRequest[] = []
  const { app, chat } = await openProgram(t, (app) => {
    const { logRequests } = app.store
    app.store.logRequests = async (requests) => {
      if (isStopping) {
        await logRequests(requests)
        return void written.push(...requests)
      }
      failed.resolve()
      throw new Error('away')
    }
  })
  await chat()
  await failed.promise
  isStopping = true
  await app.close()
  t.match(written, [{ subscription: 'demo/coder', status: 200 }])
})

t.test('of a busy plan only the newest are written, few in one transaction', async (t) => {
  const writes: CodingRequest[][] = []
  const { app } = await openEmbeddedProgram(t, {
    before: (app) => {
      app.store.logRequests = async (requests) => void writes.push(requests)
    },
  })
  const end = (subscription: string, id: string): void => {
    const request = { caller: { key: { subscription, keyId: 'key' } }, id: `req_${id}`, startedMs: performance.now() }
    for (const told of app.endings) told(request as never, { reservation: id, status: 200, durationMs: 1, complete: true } as never)
  }
  end('demo/quiet', 'first')
  for (let n = 0; n < 1500; n++) end('demo/coder', String(n))
  await app.close()
  t.same(writes.flat().map(({ id }) => id), ['first', ...Array.from({ length: 1000 }, (_, n) => String(500 + n))])
  t.ok(writes.every((requests) => requests.length <= 200), 'requests of clients wait for no longer transaction')
})

t.test('what the history cannot hold is lost with a line that counts it', async (t) => {
  const logged: string[] = []
  const written: CodingRequest[] = []
  const { app } = await openEmbeddedProgram(t, { before: (app) => void (app.store.logRequests = async (requests) => void written.push(...requests)), logged })
  // Of 30 plans in turn, of which the first has far more than are kept.
  const end = (n: number, plan: number): void => {
    const request = { caller: { key: { subscription: `demo/${plan}`, keyId: 'key' } }, id: `req_${n}`, startedMs: performance.now() }
    for (const told of app.endings) told(request as never, { reservation: String(n), status: 200, durationMs: 1, complete: true } as never)
  }
  for (let n = 0; n < 40_000; n++) end(n, n < 11_000 ? 0 : n % 30)
  await app.close()
  const lines = logged.map((line) => JSON.parse(line)).filter(({ event }) => event === 'requests_dropped')
  t.match(lines, [{ level: 40, count: 9033 }])
  t.same(written.map(({ id }) => id), Array.from({ length: 20_000 }, (_, n) => String(20_000 + n)))
})
