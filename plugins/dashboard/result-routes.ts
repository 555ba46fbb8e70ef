/** `/results/{task}`: what a task has made, as a small picture, and its removal before its time. For the AI Room, behind a session. */
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { Failure } from '../../src/domain/errors.ts'
import { resultsOf, type Task, type TaskOutcome } from '../../src/domain/task.ts'
import { sessionOf } from './sessions.ts'
import { openThumbnails } from './thumbnails.ts'

const Params = Type.Object({ id: Type.String({ maxLength: 64 }) })

type Completed = Task & { outcome: Extract<TaskOutcome, { outcome: 'completed' }> }

/** Registers the routes. A task that is not the tenant's, has no result or lost it is `not_found`. */
export function resultRoutes(app: FastifyInstance): void {
  const routes = app.withTypeProvider<TypeBoxTypeProvider>()
  const { store, files, clock } = app.tasks
  const thumbnails = openThumbnails(files, app.log)

  async function completed(request: FastifyRequest, id: string): Promise<Completed> {
    const task = await store.task(sessionOf(request).tenant, id)
    if (task?.state !== 'completed' || task.outcome?.outcome !== 'completed' || task.outcome.result.expiresAt <= clock())
      throw new Failure('not_found')
    return { ...task, outcome: task.outcome }
  }

  // The only thing of a session that a browser keeps: a page of pictures costs seconds to make, and none of them changes.
  const keep = async (_request: FastifyRequest, reply: FastifyReply) => {
    if (reply.statusCode === 200) reply.header('cache-control', 'private, max-age=86400, immutable')
  }
  routes.get('/results/:id/thumbnail', { schema: { params: Params }, onSend: keep }, async (request, reply) => {
    const { outcome } = await completed(request, request.params.id)
    const picture = await thumbnails.of(outcome.result, () => !reply.raw.destroyed)
    if (picture === null) throw new Failure('not_found')
    return reply.header('content-type', 'image/webp').send(picture)
  })

  routes.delete('/results/:id', { schema: { params: Params } }, async (request, reply) => {
    const { id, outcome } = await completed(request, request.params.id)
    // The file first: a record that says it is gone tells the truth.
    const { others } = outcome.result
    for (const { file } of resultsOf(outcome.result)) await files.remove(file)
    const gone = { expiresAt: clock() }
    const result = { ...outcome.result, ...gone, ...(others && { others: others.map((other) => ({ ...other, ...gone })) }) }
    const ended = { ...outcome, result }
    await store.moveTask(id, { from: ['completed'] }, 'completed', { outcome: ended })
    request.log.info({ event: 'result_deleted', task: id, user: sessionOf(request).session.user.id }, 'result deleted')
    return reply.code(204).send()
  })
}
