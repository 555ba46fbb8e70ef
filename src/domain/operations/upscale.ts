import { Type } from 'typebox'
import { GENERATION_FIELDS } from '../media-generations.ts'
import { defineOperation, media_url } from './operation.ts'

export const upscale = defineOperation({
  title: 'Upscale an image',
  description: 'Enlarges an image 2, 3 or 4 times in width and height, and keeps what it shows.',
  reads: 'image',
  route: { engine: 'local-image', price: { amount: '0.01', per: 'Megapixel' }, max: { megapixels: 16 } },
  fields: {
    media_url,
    scale: Type.Optional(Type.Enum([2, 3, 4], { description: '2 by default.' })),
    output_format: GENERATION_FIELDS.output_format,
  },
  defaults: ({ scale = 2 }) => ({ scale }),
  parameters: ({ scale }) => ({ scale }),
  pixels: ({ scale }, sourcePixels) => sourcePixels * scale ** 2,
})
