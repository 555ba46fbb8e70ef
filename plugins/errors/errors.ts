/**
 * Error handler: answers every failure with the service's error body, `error: {code, message, type, param}` and extra members; on some
 * routes also RFC 9457 members. Fastify's default bodies never leak through.
 */
import type { ServerResponse } from 'node:http'
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { wrongProduct } from '../../src/domain/api-keys.ts'
import { Failure, overLimit, Unavailable, type FailureCode, type FailureFacts, type FaultCode } from '../../src/domain/errors.ts'
import type { Limit } from '../../src/domain/limits.ts'
import { mayRetry, messageErrorBody, messageErrorStatus, speaksMessages, type MessagesForm } from '../../src/http/message-errors.ts'
import { disconnectStalled, STALLED_CLIENT_MS } from '../../src/http/stalled-clients.ts'
import { apiOf, type Api } from '../../src/domain/plans.ts'
import { faultsOf, invalid } from '../../src/domain/request-validation.ts'
import { bodyOf, PROBLEM } from './error-body.ts'
import { linger, type Lingering } from './lingering-close.ts'
import { framingFault, takeOver } from './malformed-requests.ts'

declare module 'fastify' {
  interface FastifyInstance {
    errors: {
      /** Creates a failure of the catalogue, to be thrown, for plugins that cannot import it. */
      fail(code: FailureCode, facts?: FailureFacts): Failure
      /** The failure that answers a thrown error, for answers that the error handler does not write. */
      of(error: unknown): Failure
      /** The body of a failure, for answers that the error handler does not write. */
      body(failure: Failure, request: FastifyRequest): Record<string, unknown>
      /** Makes a scope with a prefix answer unknown routes like its own: after the key and product checks, in their error form. */
      own(scope: FastifyInstance, form: Form): void
      /** The failure of a request without a route: 404, or 405 with the allowed methods of the path. */
      unrouted(request: FastifyRequest): Failure
      /** The first segments of the paths that are served, such as `v1`. */
      served(): Set<string>
    }
  }
  interface FastifyRequest {
    /** The code of the failure that was answered, and the limit that refused. */
    failed: { code: FailureCode; limit: Limit | null } | null
  }
  interface FastifyContextConfig {
    /** Errors of this route are also RFC 9457 problems. */
    problem?: boolean
    /** Which answers of this route have the form of Anthropic's Messages wire. */
    messages?: MessagesForm
  }
}

/** `api`: keys of the other product are refused first. */
type Form = { api?: Api; problem?: boolean; messages?: MessagesForm }

/** Error codes of Fastify and Node, mapped to the catalogue. */
const KNOWN: Record<string, FaultCode> = {
  FST_ERR_CTP_INVALID_JSON_BODY: 'invalid_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'invalid_json',
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'invalid_request',
  FST_ERR_VALIDATION: 'invalid_request',
}

/** Maps a thrown error to a failure of the catalogue. */
function failureOf(error: unknown): Failure {
  if (error instanceof Failure) return error
  if (error instanceof Unavailable) return overLimit(error.limit, { retryAfterSeconds: 2, cause: error })
  const { code, statusCode, validation, validationContext: context } = error as Partial<FastifyError>
  if (validation) return invalid(faultsOf(validation), context === 'querystring' ? 'query parameter' : undefined)
  if (code && KNOWN[code]) return new Failure(KNOWN[code], { cause: error })
  if (statusCode === 400) return new Failure('invalid_json', { cause: error })
  return new Failure('internal', { cause: error })
}

export type ErrorsOptions = {
  /** For requests that are refused before their end. */
  lingering?: Lingering
}

async function errors(app: FastifyInstance, { lingering = { bytes: 128 * 1024 * 1024, ms: 30_000 } }: ErrorsOptions): Promise<void> {
  const routes: { pattern: RegExp; method: string }[] = []
  const served = new Set<string>()

  app.decorateRequest('failed', null)
  app.decorate('errors', {
    fail: (code: FailureCode, facts?: FailureFacts) => new Failure(code, { ...facts, limit: 'plugin' }),
    of: failureOf,
    body: (failure: Failure, request: FastifyRequest) => bodyOf(failure, request.id, isProblem(request)),
    own,
    unrouted,
    served: () => served,
  })
  takeOver(app.server)

  // Fastify parses text by default; here every body is JSON.
  app.removeContentTypeParser('text/plain')

  // An unknown route reads no body. A request without one reaches the handler of its scope, which may have a page for a browser.
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    const { raw, routeOptions } = request
    const hasBody = raw.headers['content-length'] !== undefined || raw.headers['transfer-encoding'] !== undefined
    done(framingFault(raw, routeOptions.config.streamed) ?? (request.is404 && hasBody ? new Failure('not_found') : null))
  })

  app.addHook('onError', (request, reply, _error, done) => {
    const { raw } = reply
    // Injected requests have no connection, and no `complete`.
    if (request.raw.complete === false) linger(request.raw, lingering)
    // Fastify closes the connection after every body that it refuses, even after a complete one.
    else if (reply.getHeader('connection') === 'close' && raw.shouldKeepAlive && !raw.hasHeader('connection'))
      reply.header('connection', 'keep-alive')
    done()
  })

  // Once it is ended, an answer that nobody reads would be held for as long as its connection lasts.
  app.addHook('onRequest', (request, { raw }, done) => {
    // Injected requests have no connection, and no `complete`.
    if (request.raw.complete !== undefined) raw.on('prefinish', disconnectUnread)
    done()
  })

  // For 405: the methods of each path.
  app.addHook('onRoute', ({ url, method }) => {
    served.add(url.split('/')[1] ?? '')
    const pattern = new RegExp(`^${url.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll(/:[^/]+/g, '[^/]+')}$`)
    for (const name of [method].flat()) routes.push({ pattern, method: name })
  })

  app.setErrorHandler(async (error, request, reply) => {
    const failure = failureOf(error)
    if (request.is404 && OF_ADDRESSES.includes(failure.code)) return answer(unrouted(request), request, reply, false)
    return answerEarliest(failure, request, reply, isProblem(request))
  })
  app.setNotFoundHandler(async (request, reply) => answer(unrouted(request), request, reply, false))

  function own(scope: FastifyInstance, { api, problem = false, messages }: Form): void {
    const missing = (request: FastifyRequest) =>
      api !== undefined && request.caller && apiOf(request.caller.key.product) !== api ? wrongProduct(api) : unrouted(request)
    scope.setErrorHandler(async (error, request, reply) => {
      const failure = failureOf(error)
      if (!request.is404) return answerEarliest(failure, request, reply, isProblem(request))
      return answer(OF_ADDRESSES.includes(failure.code) ? missing(request) : failure, request, reply, problem, messages)
    })
    scope.setNotFoundHandler(async (request, reply) => answer(missing(request), request, reply, problem, messages))
  }

  function unrouted(request: FastifyRequest): Failure {
    const path = request.url.split('?', 1)[0] ?? ''
    const methods = routes.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method)
    // The root answers HEAD alone, to clients that probe it: there is nothing to get.
    return methods.every((method) => method === 'HEAD')
      ? new Failure('not_found')
      : new Failure('method_not_allowed', { headers: { allow: [...new Set(methods)].join(', ') } })
  }
}

/** A listener of every answer, which needs no function of its own. */
function disconnectUnread(this: ServerResponse): void {
  disconnectStalled(this, STALLED_CLIENT_MS)
}

/** Without a route these become 404 or 405: whatever the encoding of the body, and also if there is a content type but no body. */
const OF_ADDRESSES: FailureCode[] = ['not_found', 'unsupported_media_type', 'invalid_json']

function isProblem(request: FastifyRequest): boolean {
  return request.routeOptions.config.problem === true
}

/** A faulty request is reported only after the key and its plan passed. */
async function answerEarliest(failure: Failure, request: FastifyRequest, reply: FastifyReply, problem: boolean): Promise<FastifyReply> {
  const earlier = failure.status < 500 && request.caller ? await request.caller.earlierFailure().catch(failureOf) : null
  return answer(earlier ?? failure, request, reply, problem)
}

function answer(
  failure: Failure,
  request: FastifyRequest,
  reply: FastifyReply,
  problem: boolean,
  messages: MessagesForm | undefined = request.routeOptions.config.messages,
): FastifyReply {
  const { facts } = failure
  const limit = failure.status === 429 || failure.status === 503 ? (facts.limit ?? null) : null
  request.failed = { code: failure.code, limit }
  if (failure.status >= 500) request.log.error({ err: facts.cause ?? failure, code: failure.code }, 'request failed')
  // Neither stack nor parser message: they may quote what the client sent.
  else if (facts.cause) request.log.info({ code: failure.code, cause: (facts.cause as { code?: string }).code }, 'request refused')
  if (failure.status === 401) reply.header('www-authenticate', 'Bearer')
  if (facts.retryAfterSeconds !== undefined) reply.header('retry-after', String(facts.retryAfterSeconds))
  if (limit) reply.header(`x-${request.server.config.BRAND.toLowerCase()}-limit`, limit)
  const isMessages = speaksMessages(messages, request.headers)
  if (isMessages) reply.headers({ 'request-id': request.id, 'x-should-retry': String(mayRetry(failure)) })
  if (facts.headers) reply.headers(facts.headers)
  if (isMessages)
    return reply
      .code(messageErrorStatus(failure))
      .header('content-type', 'application/json; charset=utf-8')
      .send(JSON.stringify(messageErrorBody(failure, request.id)))
  return reply
    .code(failure.status)
    .header('content-type', problem ? PROBLEM : 'application/json; charset=utf-8')
    .send(JSON.stringify(bodyOf(failure, request.id, problem)))
}

export default fp(errors, { name: 'errors', fastify: '5.x', decorators: { fastify: ['config'] } })
