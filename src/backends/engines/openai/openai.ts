/** The engine `openai`: media by the OpenAI API, from the vendor or from any server that speaks it. */
import { Type } from 'typebox'
import { notMade, type OpenEngine } from '../engine.ts'
import { openApi } from '../provider/api-requests.ts'
import { hasSharp } from '../provider/mask.ts'
import type { Outside } from '../provider/environment.ts'
import type { Order } from '../provider/ordered-request.ts'
import { offersOf, providedEngine } from '../provider/provided-engine.ts'
import { openResults } from '../provider/result.ts'
import { formatsOf, reachOf, readOptions, SHARED, strict } from '../provider/settings.ts'
import { edit, generate } from './images.ts'
import { editPixels, optionsOf, ordered } from './model-traits.ts'
import { sound, spoken } from './sound.ts'
import { film } from './videos.ts'

const VENDOR_URL = 'https://api.openai.com/v1'

const formats = (...all: [string, ...string[]]) => formatsOf(all, all)
const picture = () => Type.Optional(Type.Object({ formats: formats('png', 'jpeg', 'webp') }, strict))

export const OpenaiOptions = Type.Object(
  {
    ...SHARED,
    offers: Type.Object(
      {
        image: picture(),
        ai_edit: picture(),
        inpaint: picture(),
        video: Type.Optional(Type.Object({ formats: formats('mp4') }, strict)),
        music: Type.Optional(
          Type.Object(
            {
              formats: formats('wav', 'mp3', 'flac'),
              endpoint: Type.Enum(['audio/generate', 'audio/speech'], {
                default: 'audio/generate',
                description: '`audio/generate` of vLLM-Omni makes music; `audio/speech` reads the prompt aloud.',
              }),
              voice: Type.String({ minLength: 1, maxLength: 200, default: 'alloy', description: 'For `audio/speech`.' }),
            },
            strict,
          ),
        ),
      },
      {
        ...strict,
        minProperties: 1,
        default: { image: {}, ai_edit: {}, inpaint: {}, video: {} },
        description: 'What it makes. Left out: image, ai_edit, inpaint and video.',
      },
    ),
  },
  strict,
)

/** Opens engines of this type. Throws an Error of one sentence when the options make no sense. */
export function openaiEngines(outside: Outside): OpenEngine {
  return async (_name, options, { runs } = { runs: true }) => {
    const { offers: given, ...shared } = readOptions(OpenaiOptions, options)
    const reach = reachOf(shared, VENDOR_URL, outside.keys)
    const api = openApi(reach, outside.clock)
    const results = openResults(api, reach, outside)
    const order: Order = (request, ...route) =>
      (request.kind === 'music' && given.music?.endpoint === 'audio/speech' ? spoken : ordered)(request, ...route)
    const engine = providedEngine(api, offersOf(given, !runs || hasSharp()), order, async (request, run, background) => {
      if (request.kind === 'image') return generate({ api, results }, request, run)
      if (request.kind === 'ai_edit' || request.kind === 'inpaint') return edit({ api, results }, request, run)
      if (request.kind === 'video') return film({ api, results, outside, background }, request, run)
      if (request.kind === 'music' && given.music) return sound(results, given.music, request, run)
      return notMade('not_supported', false)
    })
    return {
      ...engine,
      options: optionsOf,
      quote(request, limits, model = null, max = limits) {
        const quoted = engine.quote(request, limits, model)
        const isEdit = request.kind === 'ai_edit' || request.kind === 'inpaint'
        return isEdit ? { ...quoted, Megapixel: Math.ceil(editPixels(model, limits, max) / 1000) } : quoted
      },
    }
  }
}
