/**
 * Sound: the vendor's `audio/speech`, which reads the prompt aloud unless the model makes something else of it, or `audio/generate` of vLLM-Omni, which makes
 * music and sounds of a length.
 */
import type { GenerationRequest } from '../../../domain/media-generations.ts'
import type { Made, NotMade, Run } from '../engine.ts'
import { jsonBody } from '../provider/api-requests.ts'
import type { Order } from '../provider/ordered-request.ts'
import { measured, type Results } from '../provider/result.ts'
import { complaintOf } from './error-codes.ts'

export type Sound = { endpoint: 'audio/generate' | 'audio/speech'; voice: string }

/** What a slow voice takes for a letter or a space, and for a character that is a syllable or more. */
const READING_MS = { letter: 100, syllable: 400 }
const SYLLABLES = /[\p{N}\p{S}\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}]/gu

/** A prompt that is read aloud is as long as its words, whatever length was requested: at most as a slow voice reads them. */
export const spoken: Order = (request, _model, limits) => {
  const syllables = request.prompt.match(SYLLABLES)?.length ?? 0
  const readingMs = syllables * READING_MS.syllable + ([...request.prompt].length - syllables) * READING_MS.letter
  return { ...request, durationMs: Math.min(limits.durationMs, 1000 + readingMs) }
}

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
