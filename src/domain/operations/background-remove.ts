import { Type } from 'typebox'
import { FIELD_PATTERNS } from '../field-patterns.ts'
import { GENERATION_FIELDS } from '../media-generations.ts'
import { defineOperation, fault, isOpaque, media_url } from './operation.ts'

const isTransparent = ({ background = 'transparent' }: { background?: string }): boolean => background === 'transparent'

export const backgroundRemove = defineOperation({
  title: 'Remove the background of an image',
  description:
    'Cuts out the subject of an image: its background becomes transparent, or one plain colour. To put another scene behind the subject, use ai_edit.',
  reads: 'image',
  route: { engine: 'local-image', price: { amount: '0.02', per: 'Job' }, max: { megapixels: 16 } },
  fields: {
    media_url,
    background: Type.Optional(
      Type.String({ pattern: FIELD_PATTERNS.background.pattern, description: 'transparent (default), or a colour such as #ffffff.' }),
    ),
    crop: Type.Optional(Type.Boolean({ description: 'Crops the result to the subject; false by default.' })),
    output_format: GENERATION_FIELDS.output_format,
  },
  faults: (body) =>
    isTransparent(body) && isOpaque(body.output_format)
      ? [fault('output_format', 'not_allowed', 'cannot be transparent: give a background colour, or another format')]
      : [],
  isTransparent,
  defaults: ({ background = 'transparent', crop = false }) => ({ background: background.toLowerCase(), crop }),
  /** `background`: `transparent`, or `#rrggbb` in lower case. */
  parameters: ({ background, crop }) => ({ background, crop }),
  pixels: (_parameters, sourcePixels) => sourcePixels,
})
