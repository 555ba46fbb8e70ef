/** `GET …/{id}/events`: the history of a task and then its changes as Server-Sent Events, to its end (`docs/media.md`, "Live events"). */
import { Readable } from 'node:stream'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { openCounts } from '../../src/domain/counts-by-name.ts'
import { overLimit } from '../../src/domain/errors.ts'
import { invalid } from '../../src/domain/request-validation.ts'
import { FINAL, type Task } from '../../src/domain/task.ts'
import { taskHistory, type HistoryEvent } from '../../src/tasks/task-history.ts'
import { callerOf, type Caller } from './caller.ts'

/** Streams that one caller, a key or a session, may have open in this process. */
const STREAMS_PER_CALLER = 20
const HEARTBEAT_MS = 15_000

/** Returns the handler of the route, for a task that its caller may see. Open streams end when the program stops; clients resume elsewhere. */
export function openEventStreams(
  app: FastifyInstance,
): (request: FastifyRequest, reply: FastifyReply, task: Task) => Promise<FastifyReply> {
  const { tasks, taskWatch } = app
  const open = openCounts()
  const streams = new Set<Stream>()
  app.addHook('preClose', async () => {
    for (const { end } of streams) end()
  })

  function admit(name: string): void {
    if (open.of(name) >= STREAMS_PER_CALLER)
      throw overLimit('event_streams', {
        message: `${STREAMS_PER_CALLER} event streams are open already. Close one first.`,
        retryAfterSeconds: 5,
      })
    open.add(name, 1)
  }

  return async (request, reply, task) => {
    const caller = callerOf(request)
    let last = lastEventId(request.headers['last-event-id'])
    // Tells an EventSource whose stream has ended not to reconnect (HTML, section 9.2.3).
    if (FINAL.includes(task.state) && (await historyAfter(task, last)).length === 0) return reply.code(204).send()

    admit(caller.countedBy)
    const stream = openStream()
    streams.add(stream)
    const send = (events: HistoryEvent[]): void => {
      for (const { sequence, name, data } of events) stream.write(`id: ${sequence}\nevent: ${name}\ndata: ${JSON.stringify(data)}\n\n`)
      last = events.at(-1)?.sequence ?? last
    }
    const finish = async (final: Task): Promise<void> => {
      // Without the deliveries, which the client gets by resuming.
      send(await historyAfter(final, last).catch(() => taskHistory(final, [], last, tasks.link)))
      stream.end()
    }
    const unwatch = taskWatch.watch(task, (now) => {
      if (now === null) stream.end()
      else if (FINAL.includes(now.state)) void finish(now)
      else send(taskHistory(now, [], last, tasks.link))
    })
    const heartbeat = setInterval(() => void beat(stream, caller), HEARTBEAT_MS)
    stream.body.once('close', () => {
      clearInterval(heartbeat)
      unwatch()
      streams.delete(stream)
      open.add(caller.countedBy, -1)
    })
    return reply
      .headers({ 'cache-control': 'no-cache', 'x-accel-buffering': 'no' })
      .type('text/event-stream; charset=utf-8')
      .send(stream.body)
  }

  async function historyAfter(task: Task, after: number): Promise<HistoryEvent[]> {
    return taskHistory(task, await tasks.store.deliveries(task.id), after, tasks.link)
  }

  /** Keeps the connection alive; ends it for a client that has not read the heartbeat before, and for a key or session that is no longer valid. */
  async function beat(stream: Stream, caller: Caller): Promise<void> {
    if (stream.body.readableLength > 0) return void stream.body.destroy()
    stream.write(': keep-alive\n\n')
    const isValid = await caller.isValid().catch(() => true)
    if (!isValid) stream.end()
  }
}

type Stream = { body: Readable; write(text: string): void; end(): void }

/** After `end`, nothing is written and ending again does nothing. */
function openStream(): Stream {
  const body = new Readable({ read() {} })
  let isOver = false
  return {
    body,
    write(text) {
      if (!isOver) body.push(text)
    },
    end() {
      if (!isOver) body.push(null)
      isOver = true
    },
  }
}

/** The number of `Last-Event-ID` (HTML, section 9.2.4); 0 without the header, or with an empty one. */
function lastEventId(header: string | string[] | undefined): number {
  const text = [header ?? ''].flat().join(',')
  if (/^\d{0,9}$/.test(text)) return Number(text)
  throw invalid([{ path: '/Last-Event-ID', code: 'format', message: 'must be the id of an event of this stream' }], 'header')
}
