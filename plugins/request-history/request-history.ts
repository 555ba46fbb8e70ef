/**
 * Keeps the newest coding requests of each plan, for the usage page of the dashboard. They are written together every few seconds: a request
 * itself writes nothing more.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { KEPT_REQUESTS, type CodingRequest } from '../../src/domain/coding-requests.ts'

const FLUSH_MS = 5_000
/** Beyond these, while the store is away, the oldest are lost. */
const WAITING_MAX = 10 * KEPT_REQUESTS

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

  app.endings.push((request, line) => {
    const { caller, id: requestId, startedMs } = request
    const { reservation: id, status, code = null, durationMs, complete: isComplete, tokens: usage = null, charged = null } = line
    if (!caller || id === undefined) return
    const { subscription, keyId } = caller.key
    const at = Math.round(clock() - (performance.now() - startedMs))
    waiting.push({ id, requestId, subscription, keyId, at, durationMs, status, code, isComplete, usage, charged })
    if (waiting.length > WAITING_MAX) waiting.shift()
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
  dependencies: ['auth', 'ops'],
  decorators: { fastify: ['clock', 'endings', 'store'], request: ['caller', 'startedMs'] },
})
