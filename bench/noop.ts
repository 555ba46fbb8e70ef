/** An engine that makes nothing: what is left to measure is the way of a task through Tollgate. */
import type { Engine, OpenEngine } from '../src/engines/engine.ts'
import { amountsOf } from '../src/generations.ts'

const PIXEL = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=', 'base64')

export const openNoop: OpenEngine = async () => {
  const engine: Engine = {
    offers: { image: { formats: ['png'] } },
    quote: amountsOf,
    run: async ({ width, height }) => ({ outcome: 'made', body: PIXEL, contentType: 'image/png', facts: { width, height, durationMs: null }, used: { Job: 1000, Second: 0, Megapixel: 0 } }),
    async close() {},
  }
  return engine
}

/** An ENGINES file over it. */
export const NOOP_ENGINES = `\
engines:
  - { name: noop, type: noop }
routes:
  - { kind: image, engine: noop, price: { amount: "0.01", per: Job } }
`
