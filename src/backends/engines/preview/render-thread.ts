/** The thread of one preview: renders its request, reports the progress, and passes the bytes on. */
import { parentPort, workerData } from 'node:worker_threads'
import type { GenerationRequest } from '../../../domain/media-generations.ts'
import type { Made } from '../engine.ts'
import { SAMPLES_PER_SECOND, tune } from './music.ts'
import { png } from './png-encoder.ts'
import { painted } from '../painter/scene.ts'
import { film } from './video.ts'
import { wav } from './wav-encoder.ts'

type Rendered = { body: Uint8Array } & Pick<Made, 'contentType' | 'facts'>

/** Messages of the thread: progress in percent, and at the end the result. */
export type Message = { percent: number } | Rendered

function rendered({ kind, prompt, seed, ...request }: GenerationRequest, progress: (done: number) => void): Rendered {
  const [width, height, durationMs] = [request.width ?? 0, request.height ?? 0, request.durationMs ?? 0]
  if (kind === 'music') {
    const { left, right } = tune(prompt, seed, durationMs, progress)
    return { body: wav(left, right, SAMPLES_PER_SECOND), contentType: 'audio/wav', facts: { width: null, height: null, durationMs } }
  }
  if (kind === 'video') {
    return { body: film(prompt, seed, width, height, durationMs, progress), contentType: 'video/mp4', facts: { width, height, durationMs } }
  }
  return { body: png(painted(prompt, seed, width, height)), contentType: 'image/png', facts: { width, height, durationMs: null } }
}

let reported = -1
const made = rendered(workerData as GenerationRequest, (done) => {
  const percent = Math.floor(done * 99)
  if (percent > reported) parentPort?.postMessage({ percent: (reported = percent) }, [])
})
// A copy in memory of its own, which can be moved to the other thread: part of a pool cannot.
const body = new Uint8Array(made.body)
parentPort?.postMessage({ ...made, body }, [body.buffer])
