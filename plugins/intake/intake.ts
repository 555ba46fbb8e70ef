/** Bodies: preParsing counts how many bytes of them this process holds at once, for a body is parsed whole and stays until its answer has ended; and JSON is read strictly. */
import { Transform } from 'node:stream'
import type { FastifyInstance, FastifyRequest, RequestPayload } from 'fastify'
import fp from 'fastify-plugin'
import { Failure } from '../../src/errors.ts'
import { parseJson } from '../../src/json.ts'

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
    return parseJson(bytes, 'strict')
  })

  let held = 0
  const heldByKey = new Map<string, number>()

  app.addHook('preParsing', async (request, reply, payload) => {
    const { headers, routeOptions, caller } = request
    if (!caller || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined)) return payload
    const { keyId } = caller.key
    let ours = 0
    let isOver = false
    const hold = (more: number) => {
      // What arrives after the client left holds nothing any more.
      if (isOver) return
      const ofKey = (heldByKey.get(keyId) ?? 0) + more
      if (more > 0 && (held + more > budgetBytes || ofKey > keyBytes)) throw new Failure('server_overloaded', { retryAfterSeconds: 1 })
      held += more
      if (ofKey > 0) heldByKey.set(keyId, ofKey)
      else heldByKey.delete(keyId)
      ours += more
    }
    reply.raw.once('close', () => {
      hold(-ours)
      isOver = true
    })
    if (headers['content-length'] === undefined) return counted(payload, hold)
    // What is longer than its route allows is refused before any of it is read.
    hold(Math.min(Number(headers['content-length']), routeOptions.bodyLimit ?? MIB))
    return payload
  })
}

/**
 * A body of unknown length, which holds what has arrived of it. Where `hold` throws, what still comes is passed over and the error is the body's end: a client that is
 * answered while it sends may see no answer, but a broken connection.
 */
function counted(payload: RequestPayload, hold: (more: number) => void): Transform {
  let failure: Error | null = null
  const body = new Transform({
    transform(chunk: Buffer, _encoding, done) {
      try {
        if (!failure) hold(chunk.length)
      } catch (error) {
        failure = error as Error
      }
      done(null, failure ? undefined : chunk)
    },
    flush: (done) => done(failure),
  })
  payload.once('error', (error) => body.destroy(error))
  // Nobody listens any more after the first that is too much for the route.
  body.on('error', () => {})
  return payload.pipe(body)
}

export default fp(intake, { name: 'intake', fastify: '5.x', dependencies: ['errors', 'auth'] })
