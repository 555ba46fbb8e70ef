import { Type } from 'typebox'
import { GENERATION_FIELDS } from '../media-generations.ts'
import { defineOperation, mask_url, media_url } from './operation.ts'

const { prompt, seed, output_format } = GENERATION_FIELDS

export const inpaint = defineOperation({
  title: 'Repaint a masked area of an image',
  description:
    'Repaints the area of an image that a mask marks as the prompt describes, and keeps the rest: to replace or remove an object. Needs a mask; without one, use ai_edit.',
  reads: 'image',
  route: { engine: 'local-image', price: { amount: '0.03', per: 'Job' }, max: { megapixels: 16 } },
  fields: {
    media_url,
    prompt,
    mask_url,
    seed,
    grow_mask: Type.Optional(Type.Integer({ minimum: 0, maximum: 512, description: 'Pixels by which the mask grows; 0 by default.' })),
    output_format,
  },
  defaults: ({ grow_mask = 0 }) => ({ grow_mask }),
  parameters: ({ prompt = '', seed = null, grow_mask }): { prompt: string; seed: number | null; growMask: number } => ({
    prompt,
    seed,
    growMask: grow_mask,
  }),
  pixels: (_parameters, sourcePixels) => sourcePixels,
})
