/** Bodies: preParsing counts how many bytes of them this process holds at once, for a body is parsed whole and stays until its answer has ended; and JSON is read strictly. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
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
  /** Says how many bytes a request holds. */
  const holding = new WeakMap<FastifyRequest, (bytes: number) => void>()
  // A plugin that sends bodies on reads them in a way of its own.
  app.addContentTypeParser('application/json', { parseAs: 'buffer' }, async (request: FastifyRequest, bytes: Buffer) => {
    holding.get(request)?.(bytes.length)
    // Many clients name a type for a body that they do not send.
    if (bytes.length === 0 && request.routeOptions.config.bodyless) return undefined
    return parseJson(bytes, 'strict')
  })

  let held = 0
  const heldByKey = new Map<string, number>()

  app.addHook('preParsing', async (request, reply) => {
    const { headers, routeOptions, caller } = request
    if (!caller || (headers['content-length'] === undefined && headers['transfer-encoding'] === undefined)) return
    // A body of unknown length may become as long as its route allows, and counts so until it has arrived; what is longer is refused when it is parsed.
    const most = routeOptions.bodyLimit ?? MIB
    const asked = Math.min(Number(headers['content-length'] ?? most), most)
    const { keyId } = caller.key
    if (held + asked > budgetBytes || (heldByKey.get(keyId) ?? 0) + asked > keyBytes) throw new Failure('server_overloaded', { retryAfterSeconds: 1 })
    let ours = 0
    const hold = (bytes: number) => {
      held += bytes - ours
      const ofKey = (heldByKey.get(keyId) ?? 0) + bytes - ours
      if (ofKey > 0) heldByKey.set(keyId, ofKey)
      else heldByKey.delete(keyId)
      ours = bytes
    }
    hold(asked)
    holding.set(request, hold)
    reply.raw.once('close', () => {
      // A body that is parsed after its client left holds nothing any more.
      holding.delete(request)
      hold(0)
    })
  })
}

export default fp(intake, { name: 'intake', fastify: '5.x', dependencies: ['errors', 'auth'] })
