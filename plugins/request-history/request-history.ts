/**
 * Keeps the newest coding requests of each plan, for the usage page of the dashboard. They are written together every few seconds: a request
 * itself writes nothing more.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { KEPT_REQUESTS, type CodingRequest } from '../../src/domain/coding-requests.ts'
import type { Usage } from '../../src/domain/token-windows.ts'

const FLUSH_MS = 5_000
/** Beyond these, while the store is away, the oldest are lost. */
const WAITING_MAX = 10 * KEPT_REQUESTS

/** The fields of the log line that the settlement of a request adds. */
type Settled = { reservation?: string; tokens?: Usage | undefined; charged?: number | null }

async function requestHistory(app: FastifyInstance): Promise<void> {
  const { store, clock, log } = app
  let waiting: CodingRequest[] = []

  async function flush(): Promise<void> {
    if (waiting.length === 0) return
    const requests = waiting
    waiting = []
    try {
      await store.logRequests(requests)
    } catch (err) {
      waiting = [...requests, ...waiting].slice(-WAITING_MAX)
      throw err
    }
  }

  function add(ended: Omit<CodingRequest, 'id' | 'usage' | 'charged'>, { reservation: id, tokens, charged = null }: Settled): void {
    if (id === undefined) return
    waiting.push({ id, ...ended, usage: tokens ?? null, charged })
    if (waiting.length > WAITING_MAX) waiting.shift()
  }

  app.addHook('onRequest', (request, reply, done) => {
    const at = clock()
    reply.raw.once('close', () => {
      const { caller, failed, id: requestId, logged, startedMs } = request
      if (!caller || !logged) return
      const { subscription, keyId } = caller.key
      const { statusCode: status, writableFinished: isComplete } = reply.raw
      const durationMs = Math.round(performance.now() - startedMs)
      const ended = { requestId, subscription, keyId, at, durationMs, status, code: failed?.code ?? null, isComplete }
      logged.whenSettled((settled: Settled) => add(ended, settled))
    })
    done()
  })

  const writing = periodicTask(FLUSH_MS, flush, (err) =>
    log.warn({ event: 'requests_unlogged', err, count: waiting.length }, 'coding requests not written to the history, will be retried'),
  )
  app.addHook('onReady', writing.start)
  app.addHook('onClose', async () => {
    await writing.cancel()
    await flush().catch((err: unknown) =>
      log.warn(
        { event: 'requests_unlogged', err, count: waiting.length },
        'coding requests not written to the history, lost at the end of the process',
      ),
    )
  })
}

export default fp(requestHistory, {
  name: 'request-history',
  fastify: '5.x',
  dependencies: ['auth'],
  decorators: { fastify: ['clock', 'store'], request: ['caller', 'failed', 'logged', 'startedMs'] },
})
