import { Type } from 'typebox'
import { address, defineOperation, fault, filmFormat, media_url } from './operation.ts'

const SOURCES_MIN = 2
const SOURCES_MAX = 20

export const merge = defineOperation({
  title: 'Merge videos or recordings',
  description: 'Joins 2 to 20 existing video or audio files one after another into one file, in the given order.',
  reads: 'video',
  route: { engine: 'local', price: { amount: '0.005', per: 'Second' }, max: { megapixels: 8.3, seconds: 600 } },
  fields: {
    media_url: Type.Optional(media_url),
    media_urls: Type.Array(address('An address as in media_url, but no data: URL.'), {
      minItems: 1,
      maxItems: SOURCES_MAX,
      description: `${SOURCES_MIN} to ${SOURCES_MAX} addresses in their order, media_url counted as the first where it is given.`,
    }),
    transition: Type.Optional(Type.Enum(['none', 'fade'], { description: 'none by default.' })),
    fit: Type.Optional(
      Type.Enum(['contain', 'cover'], {
        description: 'How sources of another aspect ratio fill the picture: contain (default) adds bars, cover crops.',
      }),
    ),
    output_format: filmFormat,
  },
  faults({ media_url, media_urls = [] }) {
    const count = media_urls.length + (media_url === undefined ? 0 : 1)
    return [
      ...(count < SOURCES_MIN ? [fault('media_urls', 'minItems', `must have at least ${SOURCES_MIN} entries, media_url counted`)] : []),
      ...(count > SOURCES_MAX ? [fault('media_urls', 'maxItems', `must have at most ${SOURCES_MAX} entries, media_url counted`)] : []),
    ]
  },
  defaults: ({ transition = 'none', fit = 'contain' }) => ({ transition, fit }),
  parameters: ({ transition, fit }) => ({ transition, fit }),
  durationMs: (_parameters, sourceMs) => sourceMs,
})
