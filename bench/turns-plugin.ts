/**
 * Third-party plugin: an engine whose runs take a while, so that a queue stays long, and `GET /bench/turns`, the longest time between two turns of the program's event loop since
 * the last call.
 */
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'
import { PIXEL } from './noop.ts'
import { watchTurns } from './turns.ts'

const RUN_MS = 200

async function turns(app: FastifyInstance): Promise<void> {
  const watched = watchTurns()
  app.engines.add('noop', async () => ({
    offers: { image: { formats: ['png'] } },
    quote: () => ({ Job: 1000, Second: 0, Megapixel: 0 }),
    run: () => pause(RUN_MS, { outcome: 'made', body: PIXEL, contentType: 'image/png', facts: { width: 1, height: 1, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 0 } }),
    async close() {},
  }))
  app.addHook('onClose', async () => watched.stop())
  app.get('/bench/turns', async () => ({ longestMs: watched.longest() }))
}

export default fp(turns, { name: 'turns', fastify: '5.x' })
