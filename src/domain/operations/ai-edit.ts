import { Type } from 'typebox'
import { GENERATION_FIELDS } from '../media-generations.ts'
import { defineOperation, mask_url, media_url } from './operation.ts'

const { prompt, seed, output_format } = GENERATION_FIELDS

export const aiEdit = defineOperation({
  title: 'Edit an image by a prompt',
  description:
    'Changes an existing image as a prompt describes: its style, its colours, what is added or replaced. To repaint only the area of a mask, use inpaint; to enlarge it, upscale; for a plain or transparent background, background_remove.',
  reads: 'image',
  route: { engine: 'local-image', price: { amount: '0', per: 'Job' }, max: { megapixels: 4.2 } },
  fields: {
    media_url,
    prompt,
    mask_url: Type.Optional(mask_url),
    strength: Type.Optional(
      Type.Number({ minimum: 0, maximum: 1, description: 'How far the result may be from the source; the engine chooses by default.' }),
    ),
    seed,
    output_format,
  },
  defaults: () => ({}),
  /** Null: the engine chooses. */
  parameters: ({ prompt = '', strength = null, seed = null }): { prompt: string; strength: number | null; seed: number | null } => ({
    prompt,
    strength,
    seed,
  }),
})
