/** Bodies: preParsing counts how many bytes of them this process holds at once, for a body is parsed whole and stays until its answer has ended; and JSON is read strictly. */
import type { ServerResponse } from 'node:http'
import { Transform } from 'node:stream'
import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/domain/errors.ts'
import { parseStrictJson } from '../../src/domain/strict-json.ts'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The route takes no body, whatever its content type says. */
    bodyless?: boolean
  }
}

export type IntakeOptions = {
  /** For all bodies together. */
  budgetBytes?: number
  /** For those of one API key, so that no key takes everybody's. */
  keyBytes?: number
}

const MIB = 1024 * 1024

async function intake(app: FastifyInstance, { budgetBytes = 256 * MIB, keyBytes = 128 * MIB }: IntakeOptions): Promise<void> {
  // A plugin that sends bodies on reads them in a way of its own.
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, bytes: Buffer) => {
    // Many clients name a type for a body that they do not send.
    if (bytes.length === 0 && request.routeOptions.config.bodyless) return undefined
    return parseStrictJson(bytes, 'strict')
  })

  let held = 0
  const heldByKey = new Map<string, number>()

  /** What a request of that key holds. */
  function openShare(keyId: string): Share {
    let ours = 0
    const change = (bytes: number) => {
      held += bytes
      ours += bytes
      const ofKey = (heldByKey.get(keyId) ?? 0) + bytes
      if (ofKey > 0) heldByKey.set(keyId, ofKey)
      else heldByKey.delete(keyId)
    }
    return {
      take(bytes) {
        if (held + bytes > budgetBytes || (heldByKey.get(keyId) ?? 0) + bytes > keyBytes) throw new Failure('server_overloaded', { retryAfterSeconds: 1 })
        change(bytes)
      },
      free: () => change(-ours),
    }
  }

  app.addHook('preParsing', async (request, reply, payload) => {
    const { headers, routeOptions, caller } = request
    if (!caller || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined)) return payload
    // Of a client that left while its key was looked up nothing more is heard: what it holds would be held for ever.
    if (reply.raw.closed || reply.raw.destroyed) return payload
    const share = openShare(caller.key.keyId)
    const most = routeOptions.bodyLimit ?? MIB
    if (headers['content-length'] === undefined) return counted(payload, most, share, reply.raw)
    // What is longer than its route allows is refused before any of it is read.
    share.take(Math.min(Number(headers['content-length']), most))
    reply.raw.once('close', share.free)
    return payload
  })
}

/** `take` throws when there is no room. */
type Share = { take(bytes: number): void; free(): void }

/**
 * A body of unknown length, which holds what has arrived of it and is given on whole. Where there is no room, what is held goes, what still comes is passed over, and the
 * error is the body's end: a client that is answered while it sends may see no answer, but a broken connection. What is longer than its route allows is given on at once, to be refused.
 */
function counted(payload: RequestPayload, most: number, share: Share, answer: ServerResponse): Transform {
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
  // Nobody listens any more after the first that is too much for the route.
  body.on('error', () => {})
  answer.once('close', () => {
    share.free()
    // Of what nobody wanted to read, the connection gets rid for the next request.
    body.resume()
  })
  return payload.pipe(body)
}

export default fp(intake, { name: 'intake', fastify: '5.x', dependencies: ['errors', 'auth'] })
