/** The thread of one preview: renders the request that it was started with, tells how far it is, and hands over the bytes. */
import { parentPort, workerData } from 'node:worker_threads'
import type { GenerationRequest } from '../../../domain/media-generations.ts'
import { scene } from './scene.ts'
import { blankCanvas } from './canvas.ts'
import { film } from './video.ts'
import { png } from './png-encoder.ts'
import { SAMPLES_PER_SECOND, tune } from './music.ts'
import { wav } from './wav-encoder.ts'

type Rendered = { body: Uint8Array; contentType: string; facts: { width: number | null; height: number | null; durationMs: number | null } }

/** What the thread says: how many percent are done, and at the end what was made. */
export type Message = { percent: number } | Rendered

function rendered(request: GenerationRequest, progress: (done: number) => void): Rendered {
  const { verb, prompt, seed } = request
  const [width, height, durationMs] = [request.width ?? 0, request.height ?? 0, request.durationMs ?? 0]
  if (verb === 'music') {
    const { left, right } = tune(prompt, seed, durationMs, progress)
    return { body: wav(left, right, SAMPLES_PER_SECOND), contentType: 'audio/wav', facts: { width: null, height: null, durationMs } }
  }
  if (verb === 'video') {
    return { body: film(prompt, seed, width, height, durationMs, progress), contentType: 'video/mp4', facts: { width, height, durationMs } }
  }
  const surface = blankCanvas(width, height)
  scene(prompt, seed)(surface, 0)
  progress(0.5)
  return { body: png(surface), contentType: 'image/png', facts: { width, height, durationMs: null } }
}

let told = -1
const made = rendered(workerData as GenerationRequest, (done) => {
  const percent = Math.floor(done * 99)
  if (percent > told) parentPort?.postMessage({ percent: (told = percent) }, [])
})
// A copy in memory of its own: that can be moved to the other thread, a part of a pool cannot.
const body = new Uint8Array(made.body)
parentPort?.postMessage({ ...made, body }, [body.buffer])
