/**
 * The preview engine: real, playable files, rendered from the prompt and the seed and watermarked "preview". A fresh checkout makes media with it.
 * Each run has a thread of its own, so that the event loop stays free and an aborted run stops at once.
 */
import { Worker } from 'node:worker_threads'
import { unlessAborted } from '../../../concurrency/unless-aborted.ts'
import { amountsOf, type GenerationRequest } from '../../../domain/media-generations.ts'
import { amountsAtMost } from '../../../domain/media-operations.ts'
import { notMade, type Engine, type Made, type NotMade, type OpenEngine, type Run } from '../engine.ts'
import type { Message } from './render-thread.ts'

export const openPreview: OpenEngine = async (_name, options) => {
  const [option] = Object.keys(options)
  if (option !== undefined) throw new Error(`type preview has no option ${option}`)
  const engine: Engine = {
    offers: { image: { formats: ['png'] }, video: { formats: ['mp4'] }, music: { formats: ['wav'] } },
    missing: { ai_edit: 'pictures are edited by an engine of the type local-image' },
    quote: amountsAtMost,
    options: (kind) => (kind === 'image' ? ['n'] : []),
    run: async (request, run) => ('width' in request ? renderAll(request, run) : notMade('not_supported', false)),
    async close() {},
  }
  return engine
}

/** Each result has a seed of its own, counted from that of the request. */
async function renderAll({ n = 1, ...request }: GenerationRequest, run: Run): Promise<Made | NotMade> {
  const others: Made[] = []
  const first = await render(request, run)
  for (let next = 1; next < n && first.outcome === 'made'; next++) {
    const other = await render({ ...request, seed: ((request.seed ?? 0) + next) % 2 ** 31 }, { ...run, progress() {} })
    if (other.outcome === 'failed') return other
    others.push(other)
  }
  return first.outcome === 'failed' || others.length === 0 ? first : { ...first, used: amountsOf({ ...first.facts, n }), others }
}

/** Renders in a thread. The thread has no environment and shares nothing with this one; it ends with the run. */
async function render(request: GenerationRequest, { signal, progress, limits }: Run): Promise<Made | NotMade> {
  signal.throwIfAborted()
  const thread = new Worker(new URL('./render-thread.ts', import.meta.url), { workerData: request, env: {}, execArgv: [] })
  const { promise, resolve } = Promise.withResolvers<Made | NotMade>()
  thread.on('message', (message: Message) => {
    if ('percent' in message) progress(message.percent)
    else if (message.body.length > limits.bytes) resolve(notMade('result_too_large', false, undefined, { limit: { bytes: limits.bytes } }))
    else resolve({ outcome: 'made', ...message, used: amountsOf(message.facts) })
  })
  thread.on('error', (error) => resolve(notMade('internal', true, error)))
  thread.on('exit', (code) => resolve(notMade('internal', true, new Error(`the thread ended with ${code}`))))
  try {
    return await unlessAborted(promise, signal)
  } finally {
    await thread.terminate()
  }
}
