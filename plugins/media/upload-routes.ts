/** `POST /uploads` and `DELETE /uploads/{id}`: files of the caller as sources of operations. */
import type { Readable } from 'node:stream'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyContextConfig, FastifyInstance, FastifyRequest } from 'fastify'
import { ignoreContentType } from '../../src/http/ignored-content-type.ts'
import { uploadOwner } from '../../src/tasks/receive-upload.ts'
import { callerOf } from './caller.ts'
import { TaskParams } from './request-schemas.ts'

/** Registers the routes. An upload takes a body of any content type, and an active plan; a session names one as it does for a task. */
export function uploadRoutes(app: FastifyInstance, reads: FastifyContextConfig): void {
  const config = { ...reads, creates: true }
  const ownerOf = (request: FastifyRequest) => uploadOwner(callerOf(request).key.tenant)

  app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addHook('onRequest', ignoreContentType)
    scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
    scope.post('/uploads', { config, bodyLimit: app.uploads.limits.bytes }, async (request, reply) => {
      const failure = await callerOf(request).earlierFailure()
      if (failure) throw failure
      return reply.code(201).send(await app.uploads.receive(ownerOf(request), request.headers['content-length'], request.body as Readable))
    })
  })
  app
    .withTypeProvider<TypeBoxTypeProvider>()
    .delete('/uploads/:id', { config: { ...reads, bodyless: true }, schema: { params: TaskParams } }, async (request, reply) => {
      await app.uploads.remove(ownerOf(request), request.params.id)
      return reply.code(204).send()
    })
}
