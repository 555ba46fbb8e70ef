/** Third-party plugin with a no-op engine, so that benchmarks of tasks measure Tollgate only. */
import type { FastifyInstance } from 'fastify'
import fp from 'fastify-plugin'

const PIXEL = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=', 'base64')

const IMAGE = { contentType: 'image/png', facts: { width: 1, height: 1, durationMs: null } }
/** Nothing reads it. */
const FILM = { contentType: 'video/mp4', facts: { width: 2, height: 2, durationMs: 1000 } }

async function noop(app: FastifyInstance): Promise<void> {
  app.engines.add('noop', async () => ({
    offers: { image: { formats: ['png'] }, video: { formats: ['mp4'] } },
    quote: () => ({ Job: 1000, Second: 0, Megapixel: 0 }),
    run: async ({ kind }) => ({ outcome: 'made', body: PIXEL, ...(kind === 'image' ? IMAGE : FILM), used: { Job: 1000, Second: 0, Megapixel: 0 } }),
    async close() {},
  }))
}

export default fp(noop, { name: 'noop', fastify: '5.x' })
