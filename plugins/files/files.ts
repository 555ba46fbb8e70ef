/** Downloads of results and uploads by signed URL: `GET` and `PUT /files/{id}?exp=&sig=` (`docs/media.md`). Needs no API key. */
import type { Readable } from 'node:stream'
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox'
import type { FastifyInstance, FastifyReply } from 'fastify'
import fp from 'fastify-plugin'
import { Type } from 'typebox'
import { Failure } from '../../src/domain/errors.ts'
import { FIELD_PATTERNS } from '../../src/domain/field-patterns.ts'
import { clientHasIt, rangeOf } from '../../src/http/conditional-requests.ts'
import { ignoreContentType } from '../../src/http/ignored-content-type.ts'
import type { FileFacts, Files } from '../../src/backends/files/files.ts'
import { verifySignedUrl } from '../../src/domain/signed-urls.ts'
import { openDownloads, type DownloadLimits } from './downloads.ts'

declare module 'fastify' {
  interface FastifyInstance {
    files: Files
  }
}

/** File extensions of Content-Disposition, by content type. */
const EXTENSIONS: Record<string, string> = {
  'image/png': 'png',
  'image/jpeg': 'jpg',
  'image/webp': 'webp',
  'video/mp4': 'mp4',
  'video/webm': 'webm',
  'audio/wav': 'wav',
  'audio/mpeg': 'mp3',
  'audio/flac': 'flac',
  'audio/mp4': 'm4a',
}

/**
 * A result that is opened as a document is only displayed. It keeps its origin, since Chromium plays no video in an opaque one; without
 * scripts that is safe.
 */
const SANDBOX = "sandbox allow-same-origin; default-src 'none'; img-src 'self'; media-src 'self'; style-src 'unsafe-inline'"

const schema = {
  params: Type.Object({ id: Type.String() }),
  // Optional in the schema: a link without them gets the answer of an invalid signature.
  querystring: Type.Object({
    exp: Type.Optional(Type.String()),
    sig: Type.Optional(Type.String()),
    name: Type.Optional(Type.String({ pattern: FIELD_PATTERNS.downloadName.pattern })),
  }),
}

const LIMITS: DownloadLimits = { stalledMs: 300_000, perFile: 500, perAddress: 250 }

async function files(app: FastifyInstance, limits: Partial<DownloadLimits>): Promise<void> {
  const begin = openDownloads({ ...LIMITS, ...limits })

  /** Throws `invalid_signature` or `result_expired` unless the link is ours and valid. */
  function checkLink(id: string, { exp = '', sig = '' }: { exp?: string; sig?: string }): void {
    const verdict = verifySignedUrl({ id, exp, sig }, app.derivedKeys.links, app.clock())
    if (verdict === 'forged') throw new Failure('invalid_signature')
    if (verdict === 'expired') throw new Failure('result_expired')
  }

  /** The file of a link. Throws `invalid_signature` or `result_expired` otherwise. */
  async function linked(id: string, query: { exp?: string; sig?: string }): Promise<FileFacts> {
    checkLink(id, query)
    const facts = await app.files.stat(id)
    if (!facts || facts.expiresAt <= app.clock()) throw new Failure('result_expired')
    return facts
  }

  app.withTypeProvider<TypeBoxTypeProvider>().route({
    method: ['GET', 'HEAD'],
    url: '/files/:id',
    schema,
    async handler(request, reply) {
      const { name } = request.query
      const facts = await linked(request.params.id, request.query)
      const etag = `"${facts.etag}"`
      if (clientHasIt(request.headers['if-none-match'], etag)) return described(reply, facts, etag, name).code(304).send()
      // Range means something for GET only (RFC 9110, section 14.2).
      const range = request.method === 'GET' ? rangeOf(request.headers.range, request.headers['if-range'], etag, facts.size) : null
      if (range === 'unsatisfiable') throw new Failure('range_not_satisfiable', { headers: { 'content-range': `bytes */${facts.size}` } })
      if (request.method === 'GET') begin(facts.id, request.ip, reply.raw)
      const file = request.method === 'GET' ? await app.files.get(facts.id, range ?? undefined) : facts
      if (!file) throw new Failure('result_expired')
      described(reply, facts, etag, name).header('content-type', facts.contentType)
      if (!('stream' in file)) return reply.header('content-length', facts.size).send()
      if (range) reply.code(206).header('content-range', `bytes ${range.start}-${range.end}/${file.size}`)
      // Fastify applies the client's backpressure, and destroys the stream when the client disconnects.
      return reply.header('content-length', range ? range.end - range.start + 1 : file.size).send(file.stream)
    },
  })

  app.register(async (scope) => {
    scope.removeAllContentTypeParsers()
    scope.addHook('onRequest', ignoreContentType)
    scope.addContentTypeParser('*', (_request, payload, done) => done(null, payload))
    scope
      .withTypeProvider<TypeBoxTypeProvider>()
      .put('/files/:id', { schema, bodyLimit: app.uploads.limits.bytes }, async ({ params, query, headers, body }, reply) => {
        checkLink(params.id, query)
        const owner = app.uploads.linkOwner(params.id)
        if (owner === null) throw new Failure('method_not_allowed', { headers: { allow: 'GET, HEAD' } })
        return reply.code(201).send(await app.uploads.receive(owner, headers['content-length'], body as Readable))
      })
  })

  /**
   * Headers of every answer about a file, with or without its bytes: immutable, private, inert. With a `name` (without extension) a browser
   * saves it under that name.
   */
  function described(reply: FastifyReply, { id, contentType, expiresAt }: FileFacts, etag: string, name: string | undefined): FastifyReply {
    const shown = name === undefined && /^(image|video|audio)\/(?!svg)/.test(contentType) ? 'inline' : 'attachment'
    const extension = EXTENSIONS[contentType]
    return reply.headers({
      etag,
      'accept-ranges': 'bytes',
      'cache-control': `private, max-age=${Math.floor((expiresAt - app.clock()) / 1000)}, immutable`,
      'content-disposition': `${shown}; filename="${name ?? id}${extension === undefined ? '' : `.${extension}`}"`,
      'content-security-policy': SANDBOX,
      'cross-origin-resource-policy': 'cross-origin',
      'referrer-policy': 'no-referrer',
      'x-content-type-options': 'nosniff',
    })
  }
}

export default fp(files, {
  name: 'files',
  fastify: '5.x',
  dependencies: ['errors'],
  decorators: { fastify: ['files', 'uploads', 'derivedKeys', 'clock'] },
})
