/**
 * Sound: the vendor's `audio/speech`, which reads the prompt aloud unless the model makes something else of it, or `audio/generate` of vLLM-Omni, which makes
 * music and sounds of a length.
 */
import type { GenerationRequest } from '../../../domain/media-generations.ts'
import type { Made, NotMade, Run } from '../engine.ts'
import { jsonBody } from '../provider/api.ts'
import { measured, type Results } from '../provider/result.ts'
import { complaintOf } from './complaints.ts'

export type Sound = { endpoint: 'audio/generate' | 'audio/speech'; voice: string }

/** Makes a sound; `audio/speech` takes neither a length nor a seed. */
export async function sound(results: Results, { endpoint, voice }: Sound, request: GenerationRequest, run: Run): Promise<Made | NotMade> {
  const { model, limits, idempotencyKey } = run
  const { prompt, durationMs, seed, format } = request
  const own =
    endpoint === 'audio/speech'
      ? { voice }
      : { ...(durationMs === null ? {} : { audio_length: durationMs / 1000 }), ...(seed === null ? {} : { seed }) }
  const body = jsonBody({ ...(model === null ? {} : { model }), input: prompt, response_format: format, ...own })
  const call = { method: 'POST', path: `/${endpoint}`, body, headers: { 'idempotency-key': idempotencyKey } } as const
  return measured(await results.save(call, run, complaintOf), request, limits)
}
