/** The operations on pictures: background_remove, upscale, inpaint, and the preview of ai_edit. This process loads none of the libraries. */
import { stat } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { notMade, type NotMade } from '../../src/backends/engines/engine.ts'
import type { Job, Written } from '../../src/backends/engines/process/scratch-run.ts'
import type { AiEditJob } from './ai-edit.ts'
import type { BackgroundRemoveJob } from './background-remove.ts'
import type { CheckJob } from './check-model.ts'
import { runChildProgram } from './child-program.ts'
import type { InpaintJob } from './inpaint.ts'
import { modelBytes, type Modelled, type Models } from './models.ts'
import type { UpscaleJob } from './upscale.ts'

/** `inputs` are files of the scratch folder, of any name but `result`. */
export type ImageRun<Request> = Omit<Job, 'limits'> & { request: Request; limits: { pixels: number; bytes: number } }

/** The result is a file of the scratch folder. */
export type ImageOutcome = Written | NotMade

export type ImageOperation = Modelled | 'ai_edit'

/** The formats that each operation writes, the default first. A transparent background needs `png` or `webp`. */
export const IMAGE_FORMATS: Record<ImageOperation, readonly ['png', ...string[]]> = {
  background_remove: ['png', 'webp', 'jpeg'],
  upscale: ['png', 'jpeg', 'webp'],
  inpaint: ['png', 'jpeg', 'webp'],
  ai_edit: ['png', 'jpeg', 'webp'],
}

export type ImageOperations = {
  /**
   * Puts the subject of a picture on a transparent background or on a colour (`#rrggbb`), cropped to it on request. A picture without a
   * subject becomes background everywhere and is not cropped. Fails with `unsupported_input`, `input_too_large`, or `internal`. Rejects
   * with the reason of an aborted signal. JPEG needs a colour, which creation checks.
   */
  background_remove(run: ImageRun<{ background: string; crop: boolean; format: string }>): Promise<ImageOutcome>
  /** Enlarges a picture. Fails and rejects as `background_remove` does; `result_too_large` when the result would have too many pixels. */
  upscale(run: ImageRun<{ scale: 2 | 3 | 4; format: string }>): Promise<ImageOutcome>
  /**
   * Replaces what a mask marks by what surrounds it, by a classical method or by the operator's model. The prompt is ignored. A mask with
   * transparency marks by its transparent pixels, any other by its white ones; `growMask` widens it by pixels; an empty one leaves the
   * picture as it is. Fails and rejects as `background_remove` does; `mask_mismatch` for a mask of another aspect ratio,
   * `unsupported_input` also for one that covers everything, and `cannot_fill` when the classical method would show scraps.
   */
  inpaint(run: ImageRun<{ seed: number | null; growMask: number; format: string }>): Promise<ImageOutcome>
  /** A marked placeholder for an edit: a drawn scene over the picture. Fails and rejects as `inpaint` does. */
  ai_edit(run: ImageRun<{ prompt: string; seed: number | null; strength: number | null; format: string }>): Promise<ImageOutcome>
}

/** The operations by these models. */
export function imageOperations(models: Models): ImageOperations {
  const programs: Record<ImageOperation, string> = {
    ai_edit: 'ai-edit.ts',
    background_remove: 'background-remove.ts',
    upscale: 'upscale.ts',
    inpaint: 'inpaint.ts',
  }
  /** What every program gets: its input, where it writes, its limits, its model, and the request. */
  async function operate<J extends object>(
    operation: ImageOperation,
    run: ImageRun<{ format: string }>,
    more: Partial<J>,
  ): Promise<ImageOutcome> {
    const { scratch, limits, request } = run
    const model = operation === 'ai_edit' ? null : models[operation]
    const output = join(scratch, 'result')
    const job = { ...request, ...more, input: pathOf(run, 'media'), output, pixels: limits.pixels, model }
    const bytes = model === null ? 0 : modelBytes(operation, model.model)
    const { ended, result } = await runChildProgram({ ...run, modelBytes: bytes }, programs[operation], job)
    if (result?.outcome === 'failed') return failed(result.code, result.cause, result.details)
    const size = (await stat(output).catch(() => null))?.size ?? 0
    if (size >= limits.bytes)
      return failed('result_too_large', `a result of ${limits.bytes} bytes or more`, { limit: { bytes: limits.bytes } })
    if (!result || size === 0) return failed('internal', `the program ended without a result: ${ended.stderr}`)
    const { width, height } = result
    const used = { Job: 1000, Second: 0, Megapixel: Math.ceil((width * height) / 1000) }
    return { outcome: 'made', path: output, contentType: `image/${request.format}`, facts: { width, height, durationMs: null }, used }
  }
  return {
    background_remove: (run) => operate<BackgroundRemoveJob>('background_remove', run, {}),
    upscale: (run) => operate<UpscaleJob>('upscale', run, {}),
    inpaint: (run) => operate<InpaintJob>('inpaint', run, { mask: pathOf(run, 'mask') }),
    ai_edit: (run) => operate<AiEditJob>('ai_edit', run, { mask: pathOf(run, 'mask') }),
  }
}

/** Tries an operation's model on a small picture. Throws an Error of one sentence when it does not fit. */
export async function checkModel(operation: Modelled, models: Models): Promise<void> {
  const model = models[operation]
  if (model === null) return
  const run = {
    scratch: tmpdir(),
    limits: { pixels: 1e6, bytes: 1 },
    modelBytes: modelBytes(operation, model.model),
    signal: new AbortController().signal,
  }
  const { ended, result } = await runChildProgram({ ...run, progress() {} }, 'check-model.ts', { operation, model } as CheckJob)
  if (result?.outcome === 'failed') throw new Error(`${operation}.model: ${result.cause}`)
  if (!result) throw new Error(`${operation}.model: ${model.model} cannot be run here: ${ended.stderr.trim().split('\n').at(-1) ?? ''}`)
}

function pathOf({ inputs }: ImageRun<unknown>, role: 'media' | 'mask'): string {
  return inputs.find((input) => input.role === role)?.path ?? ''
}

function failed(code: NotMade['code'], cause: string, details?: NotMade['details']): NotMade {
  return notMade(code, code === 'internal', new Error(cause), details)
}
