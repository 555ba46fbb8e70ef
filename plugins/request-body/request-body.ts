/**
 * Request bodies: read whole within the memory budget of this process, and parsed as strict JSON. What a body holds (its bytes, its text, its
 * values) counts from its arrival until its response closes or the route releases it, and so does a large answer until it was read.
 */
import { isAscii } from 'node:buffer'
import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify'
import fp from 'fastify-plugin'
import { hasClosed } from '../../src/http/disconnect.ts'
import { openTurns } from '../../src/concurrency/event-loop-turns.ts'
import { MINIMUM_RATE, type MinimumRate } from '../../src/http/minimum-body-rate.ts'
import { parseIncrementally } from '../../src/json/incremental-json.ts'
import type { Manner } from '../../src/json/json-faults.ts'
import { parseStrictJson, textOf } from '../../src/json/strict-json.ts'
import { NO_SHARE, openBodyBudget, REQUEST_BYTES, type BodyBudget, type BodyShare } from './body-budget.ts'
import { readBody } from './read-body.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The memory that this request holds. Null without a body. */
    bodyShare: BodyShare | null
  }
  interface FastifyContextConfig {
    /** The route takes no body, whatever the content type. */
    bodyless?: boolean
    /** The body is passed on as it arrives: it is neither held nor parsed. */
    streamed?: boolean
  }
  interface FastifyInstance {
    /** Opens a share of a tenant in the memory budget of bodies, for what is held outside of a request's body. The caller frees it. */
    openBodyShare(tenant: string): BodyShare
    /**
     * Reads a body and parses it as strict JSON. A large one takes several turns of the event loop. Fails with `invalid_json`, `payload_too_large`,
     * `request_timeout`, and with `server_overloaded` when it exceeds the memory budget. Null for no body on a route that takes none.
     */
    parseBody(request: FastifyRequest, payload: RequestPayload, manner: Manner, done: ParsedBody): void
  }
}

export type RequestBodyOptions = {
  /** For all bodies of this process. */
  budget?: BodyBudget
  rate?: MinimumRate
}

/** `bytes` may be read until `done` returns. */
type ParsedBody = (error: Error | null, value?: unknown, bytes?: Buffer) => void

const MIB = 1024 * 1024
/** A body above this is parsed in slices. */
const ONE_STRETCH_BYTES = 256 * 1024
/** The operating system takes smaller answers at once. */
const LARGE_ANSWER_BYTES = 64 * 1024
/** What a parsed value counts in the budget: about its place in memory, without the characters of a string. */
const VALUE_BYTES = 64

async function requestBody(
  app: FastifyInstance,
  { budget = openBodyBudget(256 * MIB), rate = MINIMUM_RATE }: RequestBodyOptions,
): Promise<void> {
  // The openai plugin replaces this parser, because it forwards bodies unchanged.
  app.addContentTypeParser('application/json', (request, payload, done) => app.parseBody(request, payload, 'strict', done))

  app.decorateRequest('bodyShare', null)
  const nextTurn = openTurns()

  // Fastify catches what a hook throws.
  app.addHook('preParsing', (request, { raw }, _payload, done) => {
    const { caller, headers, routeOptions } = request
    const { 'content-length': length, 'transfer-encoding': coding } = headers
    const hasBody = length !== undefined || coding !== undefined
    // Many clients name the type of a body that they do not send.
    if (routeOptions.config.bodyless && coding === undefined && (length ?? '0') === '0') delete headers['content-type']
    // No close event follows when the client disconnected during the key lookup: its memory would never be freed.
    if (caller && hasBody && !routeOptions.config.streamed && !hasClosed(raw)) {
      const share = budget.share(caller.key.tenant)
      share.take(REQUEST_BYTES)
      request.bodyShare = share
      raw.on('close', share.free)
    }
    done()
  })

  // A large answer to a client that does not read it stays in memory. That of a creation is small, and comes too late to be refused.
  app.addHook('onSend', ({ caller, method }, { raw }, payload, done) => {
    const bytes = typeof payload === 'string' || Buffer.isBuffer(payload) ? Buffer.byteLength(payload) : 0
    if (caller && method === 'GET' && bytes >= LARGE_ANSWER_BYTES && !hasClosed(raw)) {
      const share = budget.share(caller.key.tenant)
      share.take(bytes)
      raw.on('close', share.free)
    }
    done()
  })

  app.decorate('openBodyShare', budget.share)
  app.decorate('parseBody', (request: FastifyRequest, payload: RequestPayload, manner: Manner, done: ParsedBody) => {
    const { config, bodyLimit } = request.routeOptions
    const share = request.bodyShare ?? NO_SHARE
    readBody(request, payload, { most: bodyLimit ?? MIB, rate }, share, (error, body) => {
      if (!body) return done(error)
      // Many clients send a content type without a body.
      if (body.bytes.length === 0 && config.bodyless) return done(null)
      parse(body.bytes, manner, share, (failure, value) => {
        done(failure, value, body.bytes)
        // Still counted: what a route makes of the body, such as the one for an upstream, takes its place.
        body.release()
      })
    })
  })

  function parse(bytes: Buffer, manner: Manner, share: BodyShare, done: ParsedBody): void {
    if (bytes.length > ONE_STRETCH_BYTES) return void parseInTurns(bytes, manner, share, done)
    let value: unknown
    try {
      share.take(textBytes(bytes, bytes.length))
      const parsed = parseStrictJson(bytes, manner)
      share.take(parsed.values * VALUE_BYTES)
      value = parsed.value
    } catch (error) {
      return done(error as Error)
    }
    done(null, value)
  }

  async function parseInTurns(bytes: Buffer, manner: Manner, share: BodyShare, done: ParsedBody): Promise<void> {
    let value: unknown
    let counted = 0
    const count = (values: number) => {
      share.take((values - counted) * VALUE_BYTES)
      counted = values
    }
    try {
      await nextTurn()
      const text = textOf(bytes)
      share.take(textBytes(bytes, text.length))
      const steps = parseIncrementally(text, manner)
      let step = steps.next()
      for (; !step.done; step = steps.next()) {
        count(step.value)
        await nextTurn()
      }
      count(step.value.values)
      value = step.value.value
    } catch (error) {
      return done(error as Error)
    }
    done(null, value)
  }
}

/** The memory of a text: one byte a character, or two when not all of them are ASCII. */
function textBytes(bytes: Buffer, characters: number): number {
  return isAscii(bytes) ? characters : 2 * characters
}

export default fp(requestBody, { name: 'request-body', fastify: '5.x', dependencies: ['errors'], decorators: { request: ['caller'] } })
