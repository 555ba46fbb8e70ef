/** Cases of the fuzzer, by seed: uploads that are nearly media, and requests and answers of pass-through routes. */
import type { IncomingHttpHeaders } from 'node:http'
import { mp4, png, wav } from '../backends/engines/media-samples.ts'
import type { Rng } from '../simulation/seeded-random.ts'

const KEY = `svc_live_${'k'.repeat(49)}`
const SAMPLES = [png(8, 8), mp4(64, 64, 1000), mp4(64, 64, 1000, { index: 'end' }), wav(100), ...['GIF89a', 'RIFF0000WEBPVP8X', 'ID3', 'fLaC', 'OggS', '\xff\xd8\xff\xe0', '\x1a\x45\xdf\xa3', 'II*\0', 'BM'].map((begin) => Buffer.concat([Buffer.from(begin, 'latin1'), Buffer.alloc(80)]))]

/** A media file of which some bytes were changed, or the end is missing. */
export function uploadBytes(rng: Rng): Buffer {
  const bytes = Buffer.from(rng.pick(SAMPLES))
  for (let changes = rng.whole(0, 12); changes > 0; changes--) bytes[rng.whole(0, Math.min(bytes.length, 400) - 1)] = rng.chance(0.4) ? rng.pick([0, 1, 0x7f, 0x80, 0xff]) : rng.whole(0, 255)
  return rng.chance(0.3) ? bytes.subarray(0, rng.whole(0, bytes.length)) : bytes
}

export type Exchange = { key: string; target: string; headers: IncomingHttpHeaders; answer: IncomingHttpHeaders }

const KEYS = [KEY, `%73${KEY.slice(1)}`, KEY.replaceAll('_', '%5F'), 'k', 'svc_live_', '']
const BITS = ['a', '=', '&', '?', '%', '%2', '%20', '+', ' ', '/', 'Bearer ', ':', ';', '"']
const PLACES = ['http:', 'https:', 'HTTP:', 'ws:', '//', '/', '\\', '/\\', '\t', '\n', 'service.test', 'SERVICE.test', 'service.test.', ':8080', ':1', 'user@', '/base', '/base/x', '/outside', '?q', '#f', '..', '%2e', 'elsewhere.test', 'x', '<', '>', '; rel=next', ', ', '"', '; anchor="']

/** A request with the key in any place, and an answer with locations that are nearly addresses of the service. */
export function exchange(rng: Rng): Exchange {
  const text = (bits: readonly string[]) => Array.from({ length: rng.whole(0, 5) }, () => rng.pick(bits)).join('')
  const place = () => text(PLACES)
  const link = () => Array.from({ length: rng.whole(1, 3) }, () => `<${place()}>${rng.pick(['', '; rel=next', '; anchor="/x"'])}`).join(', ')
  const one = (make: () => string) => (rng.chance(0.9) ? make() : ([make(), make()] as unknown as string))
  return {
    key: KEY,
    target: `/tools/${text([...BITS, ...KEYS]).replaceAll('?', '')}?${text([...BITS, ...KEYS])}`,
    headers: { 'x-a': text([...BITS, ...KEYS]), 'x-b': `Basic ${Buffer.from(text([...BITS, ...KEYS])).toString('base64')}`, connection: rng.pick(['close', 'x-a', '']) },
    answer: { location: one(place), 'content-location': one(place), link: one(link), refresh: `0; url=${place()}` },
  }
}
