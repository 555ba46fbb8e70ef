/** The examples of docs/media.md: a request of each kind and operation with its sources and its picture. `docs/media-pictures.ts` runs them. */

export type Example = {
  /** Kind or operation. */
  kind: string
  /** What it does, in a sentence or two. */
  text: string
  /** Requests for the results that the body uses, by their names: `$MEADOW` in the body is the link of MEADOW. */
  sources: Record<string, object>
  body: object
  /** What the picture shows. */
  shows: string
}

const MEADOW = { kind: 'image', prompt: 'A red balloon over a meadow by day', size: '768x480' }
const VIDEO = { kind: 'video', prompt: 'A balloon over the sea at sunset', duration_seconds: 4 }

export const EXAMPLES: readonly Example[] = [
  { kind: 'image', text: 'A picture from a prompt.', sources: {}, body: { kind: 'image', prompt: 'A lighthouse at dawn', aspect_ratio: '16:9' }, shows: 'A drawn sea at dawn with a balloon, marked as a preview' },
  { kind: 'video', text: 'A video from a prompt.', sources: {}, body: VIDEO, shows: 'Four frames of a balloon that drifts over the sea at sunset' },
  { kind: 'music', text: 'Music from a prompt.', sources: {}, body: { kind: 'music', prompt: 'A slow song', duration_seconds: 12 }, shows: 'The notes of twelve seconds, by time and pitch' },
  {
    kind: 'background_remove',
    text: 'Puts the subject of a picture on a transparent background or on a colour, and crops to it on request.',
    sources: { MEADOW },
    body: { operation: 'background_remove', media_url: '$MEADOW', crop: true },
    shows: 'A balloon over a meadow; what the network takes for the subject of it, cropped',
  },
  {
    kind: 'upscale',
    text: 'Enlarges a picture 2, 3 or 4 times, with a small network for its details.',
    sources: { SMALL: { kind: 'image', prompt: 'A lighthouse at dawn', size: '192x120' } },
    body: { operation: 'upscale', media_url: '$SMALL', scale: 4 },
    shows: 'A part of a small picture, each pixel as a square; the same part of the result',
  },
  {
    kind: 'inpaint',
    text: 'Replaces what a mask marks. The local engine fills the area from its surroundings and ignores the prompt, or fails with `cannot_fill`; models of providers paint what the prompt says.',
    sources: { MEADOW, MASK: {} },
    body: { operation: 'inpaint', media_url: '$MEADOW', mask_url: '$MASK', prompt: 'A meadow', grow_mask: 4 },
    shows: 'A balloon over a meadow; the mask, white where the balloon is; the meadow without it',
  },
  {
    kind: 'ai_edit',
    text: 'Changes a picture as the prompt says, by a model of a provider. Without one, a drawn scene of the prompt is laid over the source and marked as a preview; no model is involved.',
    sources: { MEADOW },
    body: { operation: 'ai_edit', media_url: '$MEADOW', prompt: 'Snow at night', strength: 0.6 },
    shows: 'A balloon over a meadow; the scene of night over it',
  },
  {
    kind: 'trim',
    text: 'Keeps one section of a video or audio file.',
    sources: { VIDEO },
    body: { operation: 'trim', media_url: '$VIDEO', start_time: 1, duration: 2 },
    shows: 'A frame of each half second of four seconds; the same of the two seconds that were kept',
  },
  {
    kind: 'merge',
    text: 'Joins 2 to 20 videos, or audio files. Size and rate are those of the first.',
    sources: { VIDEO, NIGHT: { kind: 'video', prompt: 'The city at night', duration_seconds: 2 } },
    body: { operation: 'merge', media_urls: ['$VIDEO', '$NIGHT'], transition: 'fade' },
    shows: 'Frames of the first video, of the fade, and of the second video',
  },
]

/** The path that a body is sent to. */
export const pathOf = (body: object): string => ('kind' in body ? '/api/v1/generations' : '/api/v1/operations')

/** The sections of docs/media.md. */
export const exampleSections: string = EXAMPLES.map(({ kind, text, body, shows, sources }) => {
  const names = Object.keys(sources).map((name) => `\`$${name}\``)
  const where = names.length === 0 ? '' : ` ${names.join(' and ')} ${names.length > 1 ? 'are addresses' : 'is the address'} of the source${names.length > 1 ? 's' : ''}.`
  const request = `curl http://127.0.0.1:8080${pathOf(body)} \\\n  -H "Authorization: Bearer $SVC_API_KEY" -H 'Content-Type: application/json' -H 'Prefer: wait=60' -d @- <<END\n${JSON.stringify(body)}\nEND`
  return `### ${kind}\n\n${text}${where}\n\n\`\`\`sh\n${request}\n\`\`\`\n\n![${shows}](media/${kind}.jpg)\n`
}).join('\n')
