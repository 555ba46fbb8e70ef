/**
 * Keeps the newest coding requests of each plan, for the usage page of the dashboard. They are written together every few seconds: a request
 * itself writes nothing more.
 */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { periodicTask } from '../../src/concurrency/periodic-task.ts'
import { KEPT_REQUESTS, type CodingRequest } from '../../src/domain/coding-requests.ts'

const FLUSH_MS = 5_000
/** Of one write: it is a transaction, for which those of the requests wait. */
const WRITE_MAX = 200
/** More than a process answers between two writes. Beyond these, while the store is away, the oldest are lost. */
const WAITING_MAX = 20 * KEPT_REQUESTS

async function requestHistory(app: FastifyInstance): Promise<void> {
  const { store, clock, log } = app
  let waiting: CodingRequest[] = []

  async function flush(): Promise<void> {
    const requests = newestOfEachPlan(waiting)
    waiting = []
    for (let at = 0; at < requests.length; at += WRITE_MAX) {
      try {
        await store.logRequests(requests.slice(at, at + WRITE_MAX))
      } catch (err) {
        waiting = [...requests.slice(at), ...waiting]
        throw err
      }
    }
  }

  function dropOldest(): void {
    const kept = newestOfEachPlan(waiting)
    waiting = kept.slice(-WAITING_MAX)
    const count = kept.length - waiting.length
    if (count > 0) log.warn({ event: 'requests_dropped', count }, 'more coding requests than the history can hold, the oldest are lost')
  }

  app.endings.push((request, line) => {
    const { caller, id: requestId, startedMs } = request
    const { reservation: id, status, code = null, durationMs, complete: isComplete, tokens: usage = null, charged = null } = line
    if (!caller || id === undefined) return
    const { subscription, keyId } = caller.key
    const at = Math.round(clock() - (performance.now() - startedMs))
    waiting.push({ id, requestId, subscription, keyId, at, durationMs, status, code, isComplete, usage, charged })
    if (waiting.length >= 2 * WAITING_MAX) dropOldest()
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

/** Those that are kept. `requests`: the newest last. */
function newestOfEachPlan(requests: readonly CodingRequest[]): CodingRequest[] {
  const kept = new Map<string, number>()
  const isKept = ({ subscription }: CodingRequest): boolean => {
    const count = (kept.get(subscription) ?? 0) + 1
    kept.set(subscription, count)
    return count <= KEPT_REQUESTS
  }
  return requests.toReversed().filter(isKept).toReversed()
}

export default fp(requestHistory, {
  name: 'request-history',
  fastify: '5.x',
  dependencies: ['auth', 'ops'],
  decorators: { fastify: ['clock', 'endings', 'store'], request: ['caller', 'startedMs'] },
})
