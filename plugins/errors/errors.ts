/**
 * Writes every failure as the service's error body: `error: {code, message, type, param}`, facts beside it, and on routes that ask for it also the members of
 * RFC 9457. Fastify's own default bodies never leak through.
 */
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fp from 'fastify-plugin'
import { Failure, Unavailable, type FailureCode, type FailureFacts } from '../../src/errors.ts'

declare module 'fastify' {
  interface FastifyInstance {
    errors: {
      /** Makes a failure of the catalogue, to be thrown. For plugins that cannot import the catalogue. */
      fail(code: FailureCode, facts?: FailureFacts): Failure
      /** What is answered for whatever was thrown, for an answer that is not written by the error handler. */
      of(error: unknown): Failure
      /** The body of a failure, for an answer that is not written by the error handler. */
      body(failure: Failure, request: FastifyRequest): Record<string, unknown>
      /** Answers what has no route in a scope of its own: 404, or 405 with `Allow`. */
      notFound(problem: boolean): (request: FastifyRequest, reply: FastifyReply) => Promise<FastifyReply>
    }
  }
  interface FastifyContextConfig {
    /** Errors of this route are also RFC 9457 problems. */
    problem?: boolean
  }
}

/** Fastify's and Node's own error codes, and what they are to a client. */
const KNOWN: Record<string, FailureCode> = {
  FST_ERR_CTP_INVALID_JSON_BODY: 'invalid_json',
  FST_ERR_CTP_EMPTY_JSON_BODY: 'invalid_json',
  FST_ERR_CTP_BODY_TOO_LARGE: 'payload_too_large',
  FST_ERR_CTP_INVALID_MEDIA_TYPE: 'unsupported_media_type',
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: 'invalid_request',
  FST_ERR_VALIDATION: 'invalid_request',
  FST_ERR_BAD_URL: 'invalid_request',
  FST_ERR_ASYNC_CONSTRAINT: 'invalid_request',
  FST_ERR_MAX_PARAM_LENGTH: 'not_found',
  FST_ERR_NOT_FOUND: 'not_found',
  FST_REQ_TIMEOUT: 'request_timeout',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** Where the validator's own words would puzzle: the path names the member itself. */
const WORDS: Record<string, string> = { required: 'is required', additionalProperties: 'is not a field of this request', minLength: 'must not be empty' }
function wordsFor(keyword: string, params: Record<string, unknown>): string | undefined {
  const { allowedValues } = params
  return keyword === 'enum' && Array.isArray(allowedValues) ? `must be one of ${allowedValues.join(', ')}` : WORDS[keyword]
}

/** A body can be wrong in as many places as it has bytes. */
const MOST_FIELD_ERRORS = 20

/** Turns whatever was thrown into a failure that may be answered. */
function failureOf(error: unknown): Failure {
  if (error instanceof Failure) return error
  if (error instanceof Unavailable) return new Failure('unavailable', { retryAfterSeconds: 2, cause: error })
  const { code, statusCode, validation } = error as Partial<FastifyError>
  if (validation) {
    const errors = validation.slice(0, MOST_FIELD_ERRORS).map(({ instancePath, keyword, message, params }) => ({
      path: pointer(instancePath, params),
      code: keyword ?? 'invalid',
      message: wordsFor(keyword ?? '', params) ?? message ?? 'is not valid',
    }))
    const first = errors[0]
    return new Failure('invalid_request', {
      errors,
      ...(first ? { message: `${first.path || 'The body'} ${first.message}.`, param: first.path.slice(1).replaceAll('/', '.') || null } : {}),
    })
  }
  if (code && KNOWN[code]) return new Failure(KNOWN[code], { cause: error })
  if (statusCode === 400) return new Failure('invalid_json', { cause: error })
  return new Failure('internal', { cause: error })
}

/** A JSON Pointer to the place at fault: for a missing or unknown member, to that member. */
function pointer(instancePath: string, params: Record<string, unknown> | undefined): string {
  const member = params?.['missingProperty'] ?? params?.['additionalProperty'] ?? (params?.['requiredProperties'] as string[] | undefined)?.[0]
  return typeof member === 'string' ? `${instancePath}/${member.replaceAll('~', '~0').replaceAll('/', '~1')}` : instancePath
}

function bodyOf(failure: Failure, request: FastifyRequest, problem = request.routeOptions.config.problem): Record<string, unknown> {
  const { facts } = failure
  const members = problem
    ? {
        type: `about:blank#${failure.code}`,
        title: failure.code.replaceAll('_', ' '),
        status: failure.status,
        detail: failure.message,
        instance: `urn:request:${request.id}`,
      }
    : {}
  return {
    ...members,
    error: { message: failure.message, type: failure.type, code: failure.code, param: facts.param ?? null, ...facts.inside },
    ...(facts.errors ? { errors: facts.errors } : {}),
    ...facts.beside,
  }
}

async function errors(app: FastifyInstance): Promise<void> {
  const routes: { pattern: RegExp; method: string }[] = []

  app.decorate('errors', { fail: (code: FailureCode, facts?: FailureFacts) => new Failure(code, facts), of: failureOf, body: bodyOf, notFound })

  // Fastify reads text by default; here every body is JSON.
  app.removeContentTypeParser('text/plain')

  // Nor do we decompress: a coded body would be parsed as what it is not (RFC 9110, section 8.4).
  app.addHook('preParsing', async (request) => {
    if ((request.headers['content-encoding'] ?? 'identity') !== 'identity') throw new Failure('unsupported_media_type', { message: 'Send the body without Content-Encoding.' })
  })

  // The 405 answer needs to know which verbs an address takes.
  app.addHook('onRoute', ({ url, method }) => {
    const pattern = new RegExp(`^${url.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll(/:[^/]+/g, '[^/]+')}$`)
    for (const name of [method].flat()) routes.push({ pattern, method: name })
  })

  async function answer(failure: Failure, request: FastifyRequest, reply: FastifyReply, problem = request.routeOptions.config.problem): Promise<FastifyReply> {
    const { facts } = failure
    if (failure.status >= 500) request.log.error({ err: facts.cause ?? failure, code: failure.code }, 'request failed')
    // No stack and no words of a parser: those may repeat what the client sent.
    else if (facts.cause) request.log.info({ code: failure.code, cause: (facts.cause as { code?: string }).code }, 'request refused')
    if (failure.status === 401) reply.header('www-authenticate', 'Bearer')
    if (facts.retryAfterSeconds !== undefined) reply.header('retry-after', String(facts.retryAfterSeconds))
    if (facts.headers) reply.headers(facts.headers)
    const type = problem ? 'application/problem+json' : 'application/json; charset=utf-8'
    return reply.code(failure.status).header('content-type', type).send(JSON.stringify(bodyOf(failure, request, problem)))
  }

  app.setErrorHandler(async (error, request, reply) => {
    const failure = failureOf(error)
    // What is wrong with the request is told only after the key and its plan were found in order.
    const earlier = failure.status < 500 && request.caller ? await request.caller.earlierFailure().catch(failureOf) : null
    return answer(earlier ?? failure, request, reply)
  })

  app.setNotFoundHandler(notFound(false))

  function notFound(problem: boolean) {
    return async (request: FastifyRequest, reply: FastifyReply): Promise<FastifyReply> => {
      const path = request.url.split('?', 1)[0] ?? ''
      const methods = routes.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method)
      if (methods.length === 0) return answer(new Failure('not_found'), request, reply, problem)
      return answer(new Failure('method_not_allowed', { headers: { allow: [...new Set(methods)].join(', ') } }), request, reply, problem)
    }
  }
}

export default fp(errors, { name: 'errors', fastify: '5.x' })
