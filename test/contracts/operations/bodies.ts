/** Bodies of operations: one that is valid for each, and every way in which a parameter can be wrong. */
import type { EngineRequest } from '../../../src/backends/engines/engine.ts'
import { OPERATIONS, type Operation } from '../../../src/domain/media-operations.ts'

export type Body = { operation: string } & Record<string, unknown>
/** Addresses of sources that a test serves. */
export type Urls = { image: string; mask: string; film: string; song: string }

/** The least that each operation needs. */
export const VALID: Record<Operation, (urls: Urls) => Body> = {
  background_remove: ({ image }) => ({ operation: 'background_remove', media_url: image }),
  upscale: ({ image }) => ({ operation: 'upscale', media_url: image }),
  ai_edit: ({ image }) => ({ operation: 'ai_edit', media_url: image, prompt: 'add a hat' }),
  inpaint: ({ image, mask }) => ({ operation: 'inpaint', media_url: image, mask_url: mask, prompt: 'a lawn' }),
  trim: ({ film }) => ({ operation: 'trim', media_url: film, start_time: 0.1 }),
  merge: ({ film, song }) => ({ operation: 'merge', media_urls: [film, song] }),
}

/** Every parameter of each operation, by its value in a body and in the engine's request. */
export const WHOLE: [body: (urls: Urls) => Body, request: EngineRequest, estimatedCost: string][] = [
  [VALID.background_remove, { kind: 'background_remove', background: 'transparent', crop: false, format: 'png' }, '0.0200'],
  [({ image }) => ({ operation: 'background_remove', media_url: image, background: '#FFaa00', crop: true, output_format: 'png' }), { kind: 'background_remove', background: '#ffaa00', crop: true, format: 'png' }, '0.0200'],
  [VALID.upscale, { kind: 'upscale', scale: 2, format: 'png' }, '0.1600'],
  [({ image }) => ({ operation: 'upscale', media_url: image, scale: 4 }), { kind: 'upscale', scale: 4, format: 'png' }, '0.1600'],
  [VALID.ai_edit, { kind: 'ai_edit', prompt: 'add a hat', strength: null, seed: null, format: 'png' }, '0.0500'],
  [({ image, mask }) => ({ operation: 'ai_edit', media_url: image, prompt: 'x', mask_url: mask, strength: 0.5, seed: 7 }), { kind: 'ai_edit', prompt: 'x', strength: 0.5, seed: 7, format: 'png' }, '0.0500'],
  [VALID.inpaint, { kind: 'inpaint', prompt: 'a lawn', seed: null, growMask: 0, format: 'png' }, '0.1200'],
  [({ image, mask }) => ({ operation: 'inpaint', media_url: image, mask_url: mask, prompt: 'x', seed: 0, grow_mask: 12 }), { kind: 'inpaint', prompt: 'x', seed: 0, growMask: 12, format: 'png' }, '0.1200'],
  [VALID.trim, { kind: 'trim', startMs: 100, endMs: null, mode: 'accurate', format: 'png' }, '0.6000'],
  [({ film }) => ({ operation: 'trim', media_url: film, start_time: 1.5, end_time: 4, mode: 'fast' }), { kind: 'trim', startMs: 1500, endMs: 4000, mode: 'fast', format: 'png' }, '0.0400'],
  [({ song }) => ({ operation: 'trim', media_url: song, start_time: 0, duration: 0.25 }), { kind: 'trim', startMs: 0, endMs: 250, mode: 'accurate', format: 'png' }, '0.0025'],
  // An end past the end is cut there, so that no more than the route's length is held.
  [({ film }) => ({ operation: 'trim', media_url: film, start_time: 50, end_time: 3600 }), { kind: 'trim', startMs: 50_000, endMs: 3_600_000, mode: 'accurate', format: 'png' }, '0.6000'],
  [VALID.merge, { kind: 'merge', transition: 'none', fit: 'contain', format: 'png' }, '0.6000'],
  [({ film, song }) => ({ operation: 'merge', media_url: song, media_urls: [film], transition: 'fade', fit: 'cover' }), { kind: 'merge', transition: 'fade', fit: 'cover', format: 'png' }, '0.6000'],
]

/** What is taken away from a valid body, or put into it, and the paths of all faults. Undefined takes away. */
type Fault = [operation: Operation, change: Record<string, unknown>, paths: string[]]

const numbers = (operation: Operation, field: string, wrong: unknown[]): Fault[] => wrong.map((value) => [operation, { [field]: value }, [`/${field}`]])
const urls = (count: number) => Array.from({ length: count }, (_, i) => `https://example.com/${i}.mp4`)

/** Faults that every operation with that field has. */
const shared = OPERATIONS.flatMap((operation): Fault[] => [
  [operation, { colour: 'red' }, ['/colour']],
  [operation, { output_format: 'exe' }, ['/output_format']],
  [operation, { output_format: 'PNG!' }, ['/output_format']],
  [operation, { webhook_url: 7 }, ['/webhook_url']],
  [operation, { metadata: { a: 1 } }, ['/metadata/a']],
  [operation, { max_cost: '-1' }, ['/max_cost']],
  [operation, { media_url: 7 }, ['/media_url']],
  [operation, { media_url: '' }, ['/media_url']],
  [operation, { media_url: null }, ['/media_url']],
  [operation, { media_url: `https://example.com/${'x'.repeat(8192)}` }, ['/media_url']],
  ...(operation === 'merge' ? [] : [[operation, { media_url: undefined }, ['/media_url']] as Fault, [operation, { media_urls: urls(2) }, ['/media_urls']] as Fault]),
  ...(operation === 'ai_edit' || operation === 'inpaint'
    ? [...numbers(operation, 'prompt', ['', 'x'.repeat(8001), 7, undefined]), ...numbers(operation, 'seed', [-1, 1.5, 2 ** 31, '7']), ...numbers(operation, 'mask_url', ['', 7])]
    : [[operation, { prompt: 'x' }, ['/prompt']] as Fault, [operation, { mask_url: 'https://example.com/m.png' }, ['/mask_url']] as Fault]),
])

export const FAULTS: Fault[] = [
  ...shared,
  ...numbers('background_remove', 'background', ['red', '#fff', '#ggg000', 7, '']),
  ...numbers('background_remove', 'crop', ['true', 1]),
  ['background_remove', { output_format: 'jpeg' }, ['/output_format']],
  ['background_remove', { background: 'red', crop: 'yes', scale: 2 }, ['/background', '/crop', '/scale']],
  ...numbers('upscale', 'scale', [1, 5, 2.5, '2', null]),
  ['upscale', { strength: 1 }, ['/strength']],
  ...numbers('ai_edit', 'strength', [-0.1, 1.1, '1']),
  ['ai_edit', { grow_mask: 1 }, ['/grow_mask']],
  ['inpaint', { mask_url: undefined }, ['/mask_url']],
  ['inpaint', { mask_url: undefined, prompt: undefined, media_url: undefined }, ['/mask_url', '/media_url', '/prompt']],
  ...numbers('inpaint', 'grow_mask', [-1, 1.5, 513, '1']),
  ['inpaint', { strength: 0.5 }, ['/strength']],
  ...numbers('trim', 'start_time', [-1, '1', undefined, 86_401]),
  ...numbers('trim', 'end_time', [0, -1, '1', 86_401]),
  ['trim', { end_time: 0.1 }, ['/end_time']],
  ['trim', { start_time: 5, end_time: 4 }, ['/end_time']],
  ...numbers('trim', 'duration', [0, -1, '1']),
  ['trim', { end_time: 2, duration: 1 }, ['/duration']],
  ...numbers('trim', 'mode', ['exact', 1]),
  ['trim', { fit: 'cover' }, ['/fit']],
  ['trim', { start_time: -1, mode: 'x', transition: 'fade' }, ['/mode', '/start_time', '/transition']],
  ...numbers('merge', 'media_urls', [undefined, [], 'https://example.com/a.mp4', urls(1), urls(21), [7, 'https://example.com/a.mp4']].slice(0, 5)),
  ['merge', { media_urls: [7, ''] }, ['/media_urls/0', '/media_urls/1']],
  ['merge', { media_url: 'https://example.com/first.mp4', media_urls: urls(20) }, ['/media_urls']],
  ['merge', { media_url: 'https://example.com/first.mp4', media_urls: undefined }, ['/media_urls']],
  ...numbers('merge', 'transition', ['wipe', true]),
  ...numbers('merge', 'fit', ['fill', 1]),
  ['merge', { start_time: 1 }, ['/start_time']],
]
