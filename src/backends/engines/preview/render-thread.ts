/** The thread of one preview: renders its request, reports the progress, and passes the bytes on. */
import { parentPort, workerData } from 'node:worker_threads'
import type { GenerationRequest } from '../../../domain/media-generations.ts'
import type { OperationRequest } from '../../../domain/media-operations.ts'
import { blankCanvas, type Canvas } from './canvas.ts'
import { editedPicture } from './edit.ts'
import { SAMPLES_PER_SECOND, tune } from './music.ts'
import { decodePng } from './png-decoder.ts'
import { png } from './png-encoder.ts'
import { scene } from './scene.ts'
import { film } from './video.ts'
import { wav } from './wav-encoder.ts'

export type PreviewRequest = GenerationRequest | Extract<OperationRequest, { verb: 'ai_edit' }>

/** `pixels`: how many a source may have. */
export type Work = { request: PreviewRequest; sources: { role: 'media' | 'mask'; bytes: Uint8Array }[]; pixels: number }

type Rendered = { body: Uint8Array; contentType: string; facts: { width: number | null; height: number | null; durationMs: number | null } }

/** Messages of the thread: progress in percent, and at the end the result, or why a source cannot be read. */
export type Message = { percent: number } | { unsupported: string } | Rendered

function rendered({ request, sources, pixels }: Work, progress: (done: number) => void): Rendered | { unsupported: string } {
  if (request.verb === 'ai_edit') {
    const [picture, mask] = (['media', 'mask'] as const)
      .map((role) => sources.find((source) => source.role === role))
      .map((source) => source && decodePng(source.bytes, pixels))
    if (!picture || mask === null) return { unsupported: 'no PNG that the preview reads' }
    progress(0.2)
    const canvas = editedPicture(request, picture, mask ?? null)
    return canvas ? image(canvas) : { unsupported: 'a mask of another aspect ratio' }
  }
  const { verb, prompt, seed } = request
  const [width, height, durationMs] = [request.width ?? 0, request.height ?? 0, request.durationMs ?? 0]
  if (verb === 'music') {
    const { left, right } = tune(prompt, seed, durationMs, progress)
    return { body: wav(left, right, SAMPLES_PER_SECOND), contentType: 'audio/wav', facts: { width: null, height: null, durationMs } }
  }
  if (verb === 'video') {
    return { body: film(prompt, seed, width, height, durationMs, progress), contentType: 'video/mp4', facts: { width, height, durationMs } }
  }
  const canvas = blankCanvas(width, height)
  scene(prompt, seed)(canvas, 0)
  progress(0.5)
  return image(canvas)
}

function image(canvas: Canvas): Rendered {
  return { body: png(canvas), contentType: 'image/png', facts: { width: canvas.width, height: canvas.height, durationMs: null } }
}

let reported = -1
const made = rendered(workerData as Work, (done) => {
  const percent = Math.floor(done * 99)
  if (percent > reported) parentPort?.postMessage({ percent: (reported = percent) }, [])
})
if ('unsupported' in made) {
  parentPort?.postMessage(made, [])
} else {
  // A copy in memory of its own, which can be moved to the other thread: part of a pool cannot.
  const body = new Uint8Array(made.body)
  parentPort?.postMessage({ ...made, body }, [body.buffer])
}
