/**
 * Memory budget of request bodies, per caller and per process: counts the bytes of a body from its arrival until its response closes,
 * because bodies are held whole, and the values that are parsed from it. Also the strict JSON parser.
 */
import type { ServerResponse } from 'node:http'
import { Transform } from 'node:stream'
import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify'
import fp from 'fastify-plugin'
import { openCounts } from '../../src/concurrency/counts-by-name.ts'
import { openTurns } from '../../src/concurrency/event-loop-turns.ts'
import { Failure } from '../../src/domain/errors.ts'
import { parseIncrementally } from '../../src/domain/incremental-json.ts'
import type { Manner } from '../../src/domain/json-faults.ts'
import { parseStrictJson, textOf } from '../../src/domain/strict-json.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The bytes that the body of this request holds. Null without a body. */
    bodyShare: BodyShare | null
  }
  interface FastifyContextConfig {
    /** The route takes no body, whatever the content type. */
    bodyless?: boolean
    /** The body is passed on as it arrives: it is neither held nor parsed. */
    streamed?: boolean
  }
  interface FastifyInstance {
    /**
     * Parses a body as strict JSON. A large one takes several turns of the event loop; a small one calls back at once. Fails with `invalid_json`, and with
     * `server_overloaded` when its values exceed a budget.
     */
    parseBody(request: FastifyRequest, bytes: Buffer, manner: Manner, done: ParsedBody): void
  }
}

export type RequestBodyOptions = {
  /** For all bodies of this process. */
  budgetBytes?: number
  /** For the bodies of one caller: an API key, or a session of the dashboard. */
  callerBytes?: number
}

type ParsedBody = (error: Error | null, value?: unknown) => void

const MIB = 1024 * 1024
/** A body above this is parsed in slices. */
const ONE_STRETCH_BYTES = 256 * 1024
/** What a parsed value counts in the budgets: about its place in memory, without the characters of a string. */
const VALUE_BYTES = 64

async function requestBody(app: FastifyInstance, { budgetBytes = 256 * MIB, callerBytes = 128 * MIB }: RequestBodyOptions): Promise<void> {
  // The openai plugin replaces this parser, because it forwards bodies unchanged.
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (request: FastifyRequest, bytes: Buffer, done) => {
    // Many clients send a content type without a body.
    if (bytes.length === 0 && request.routeOptions.config.bodyless) done(null)
    else app.parseBody(request, bytes, 'strict', done)
  })

  app.decorateRequest('bodyShare', null)
  const nextTurn = openTurns()

  app.decorate('parseBody', (request: FastifyRequest, bytes: Buffer, manner: Manner, done: ParsedBody) => {
    const charge = openCharge(bytes, request.bodyShare)
    if (bytes.length > ONE_STRETCH_BYTES) return void parseInTurns(bytes, manner, charge, done)
    let value: unknown
    try {
      const parsed = parseStrictJson(bytes, manner)
      charge(parsed.values)
      value = parsed.value
    } catch (error) {
      return done(error as Error)
    }
    done(null, value)
  })

  async function parseInTurns(bytes: Buffer, manner: Manner, charge: (values: number) => void, done: ParsedBody): Promise<void> {
    let value: unknown
    try {
      await nextTurn()
      const steps = parseIncrementally(textOf(bytes), manner)
      let step = steps.next()
      for (; !step.done; step = steps.next()) {
        charge(step.value)
        await nextTurn()
      }
      charge(step.value.values)
      value = step.value.value
    } catch (error) {
      return done(error as Error)
    }
    done(null, value)
  }

  let held = 0
  const heldByCaller = openCounts()

  /** The bytes that one request of a caller holds. */
  function openShare(name: string): BodyShare {
    let ours = 0
    const change = (bytes: number) => {
      held += bytes
      ours += bytes
      heldByCaller.add(name, bytes)
    }
    return {
      take(bytes) {
        if (held + bytes > budgetBytes || heldByCaller.of(name) + bytes > callerBytes)
          throw new Failure('server_overloaded', { retryAfterSeconds: 1 })
        change(bytes)
      },
      free: () => change(-ours),
    }
  }

  // Fastify catches what a hook throws.
  app.addHook('preParsing', (request, reply, payload, done) => done(null, heldBody(request, reply.raw, payload)))

  /** The body, whose bytes count from now on. Throws `server_overloaded`. */
  function heldBody(request: FastifyRequest, answer: ServerResponse, payload: RequestPayload): RequestPayload {
    const { headers, routeOptions, caller } = request
    if (!caller || routeOptions.config.streamed || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined))
      return payload
    // No close event follows when the client disconnected during the key lookup: its bytes would never be freed.
    if (answer.closed || answer.destroyed) return payload
    const share = openShare(caller.countedBy)
    request.bodyShare = share
    const most = routeOptions.bodyLimit ?? MIB
    if (headers['content-length'] === undefined) return counted(payload, most, share, answer)
    // A content-length above the limit of the route is refused by Fastify before the body is read.
    share.take(Math.min(Number(headers['content-length']), most))
    answer.on('close', share.free)
    return payload
  }
}

/** `take` throws `server_overloaded` when a budget is exceeded. */
type BodyShare = { take(bytes: number): void; free(): void }

/** Takes the memory of the values of a body, as far as it exceeds the bytes, which are taken already. Called with the number of values so far. */
function openCharge({ length }: Buffer, share: BodyShare | null): (values: number) => void {
  let taken = 0
  return (values) => {
    const exceeding = Math.max(0, values * VALUE_BYTES - length) - taken
    if (exceeding > 0) share?.take(exceeding)
    taken += exceeding
  }
}

/**
 * A body without content-length: counts the received bytes and passes the body on when it is complete. Above a budget it frees its bytes,
 * discards the rest, and fails at the end of the body, because a client that gets an answer while it sends may see a broken connection
 * instead. A body above the limit of its route is passed on at once, to be refused.
 */
function counted(payload: RequestPayload, most: number, share: BodyShare, answer: ServerResponse): Transform {
  let parts: Buffer[] = []
  let arrived = 0
  let failure: Error | null = null
  const give = () => {
    for (const part of parts) body.push(part)
    parts = []
  }
  const body = new Transform({
    transform(part: Buffer, _encoding, done) {
      arrived += part.length
      try {
        if (!failure && arrived <= most && !answer.closed) share.take(part.length)
        if (!failure) parts.push(part)
      } catch (error) {
        failure = error as Error
        parts = []
        share.free()
      }
      if (arrived <= most) return done()
      give()
      done(failure)
    },
    flush(done) {
      give()
      done(failure)
    },
  })
  payload.once('error', (error) => body.destroy(error))
  // Without a listener an error after the refusal would crash the process.
  body.on('error', () => {})
  answer.once('close', () => {
    share.free()
    // Discards what the route did not read, so that the connection can be reused.
    body.resume()
  })
  return payload.pipe(body)
}

export default fp(requestBody, { name: 'request-body', fastify: '5.x', dependencies: ['errors'], decorators: { request: ['caller'] } })
