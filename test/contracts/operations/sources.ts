/** A real HTTP server of source media, small files of each family, and what a source can do wrong. */
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Test } from 'tap'
import { openPreview } from '../../../src/backends/engines/preview/preview.ts'
import type { GenerationRequest } from '../../../src/domain/media-generations.ts'
import { runControl } from '../../fakes/engine.ts'
import { openReceiver, type Answer, type Receiver } from '../../fakes/receiver.ts'
import type { Urls } from './bodies.ts'

const preview = await openPreview('preview', {})

async function rendered(request: Pick<GenerationRequest, 'kind' | 'width' | 'height' | 'durationMs'>): Promise<Buffer> {
  const made = await preview.run({ prompt: 'a lighthouse', seed: null, format: '', ...request }, runControl())
  if (made.outcome !== 'made' || !(made.body instanceof Uint8Array)) throw new Error('the preview engine made nothing')
  return Buffer.from(made.body)
}

export const IMAGE = await rendered({ kind: 'image', width: 40, height: 30, durationMs: null })
export const MASK = await rendered({ kind: 'image', width: 20, height: 16, durationMs: null })
export const FILM = await rendered({ kind: 'video', width: 64, height: 48, durationMs: 500 })
export const SONG = await rendered({ kind: 'music', width: null, height: null, durationMs: 200 })

const FILES: Record<string, [type: string, bytes: Buffer]> = {
  // The types lie, or say nothing: only the content counts.
  '/image': ['text/html', IMAGE],
  '/mask': ['image/png', MASK],
  '/film': ['image/jpeg', FILM],
  '/song': ['application/octet-stream', SONG],
}

export type Sources = { server: Receiver; urls: Urls }

/** Serves the files above, and whatever `server.next` says before that. */
export async function openSources(t: Test): Promise<Sources> {
  const server = await openReceiver(t)
  server.always(({ path }) => {
    const [type, body] = FILES[path] ?? []
    return body ? { status: 200, headers: { 'content-type': type ?? '' }, body } : { status: 404 }
  })
  const at = (name: string) => `${server.url}/${name}`
  return { server, urls: { image: at('image'), mask: at('mask'), film: at('film'), song: at('song') } }
}

/** The header of a PNG of that size; nothing behind it. */
export function hugePng(width: number, height: number): Buffer {
  const header = Buffer.from(IMAGE)
  header.writeUInt32BE(width, 16)
  header.writeUInt32BE(height, 20)
  return header
}

/** A GIF of two pictures of one pixel. */
const PIXEL = Buffer.from('2c00000000010001000002024401003b', 'hex').subarray(0, -1)
const ANIMATION = Buffer.concat([Buffer.from('474946383961010001008000000000ffffffff', 'hex'), PIXEL, PIXEL, Buffer.of(0x3b)])

/** The directories of a TIFF of two pages, without their pixels. */
const PAGES = Buffer.from('49492a000800000000000e000000000000000000', 'hex')

/** Sends a body without an end. */
function endless(_request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'image/png' })
  response.write(IMAGE)
  const timer = setInterval(() => response.write(Buffer.alloc(64 * 1024)), 1)
  response.once('close', () => clearInterval(timer))
}

/** Begins a body and goes silent. */
function stalled(_request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'image/png' }).write(IMAGE.subarray(0, 20))
}

function cutOff(request: IncomingMessage, response: ServerResponse): void {
  response.writeHead(200, { 'content-type': 'image/png', 'content-length': IMAGE.length }).write(IMAGE.subarray(0, 50), () => request.socket.destroy())
}

const ok = (body: string | Buffer, type = 'image/png'): Answer => ({ status: 200, headers: { 'content-type': type }, body })

/** The answer of the source, the code of the task's error, and whether another attempt is made. */
export const BROKEN: { name: string; answer: Answer; code: string; retried: boolean }[] = [
  { name: '404', answer: { status: 404 }, code: 'input_unreachable', retried: false },
  { name: '403 with a picture', answer: { status: 403, body: IMAGE }, code: 'input_unreachable', retried: false },
  { name: '429', answer: { status: 429 }, code: 'input_unreachable', retried: false },
  { name: '500', answer: { status: 500 }, code: 'input_unreachable', retried: true },
  { name: '503 with a picture', answer: { status: 503, body: IMAGE }, code: 'input_unreachable', retried: true },
  { name: 'a reset', answer: 'reset', code: 'input_unreachable', retried: true },
  { name: 'a body that breaks off', answer: cutOff, code: 'input_unreachable', retried: true },
  { name: 'no answer', answer: 'never', code: 'input_unreachable', retried: true },
  { name: 'a body that stalls', answer: stalled, code: 'input_unreachable', retried: true },
  { name: 'a body without an end', answer: endless, code: 'input_too_large', retried: false },
  { name: 'a length that is too large', answer: { status: 200, headers: { 'content-length': '1000000000' }, body: '' }, code: 'input_too_large', retried: false },
  { name: 'a redirect inwards', answer: { redirect: 'http://169.254.169.254/latest/meta-data' }, code: 'input_not_allowed', retried: false },
  { name: 'a redirect to another scheme', answer: { redirect: 'file:///etc/passwd' }, code: 'input_not_allowed', retried: false },
  { name: 'a redirect to nowhere', answer: { status: 302 }, code: 'input_unreachable', retried: false },
  { name: 'an empty body', answer: ok(''), code: 'unsupported_input', retried: false },
  { name: 'no content', answer: { status: 204 }, code: 'unsupported_input', retried: false },
  { name: 'a page in place of a picture', answer: ok('<!doctype html><title>Sign in</title>'), code: 'unsupported_input', retried: false },
  { name: 'SVG', answer: ok('<svg xmlns="http://www.w3.org/2000/svg"/>', 'image/svg+xml'), code: 'unsupported_input', retried: false },
  { name: 'a film that says it is a picture', answer: ok(FILM), code: 'unsupported_input', retried: false },
  { name: 'sound that says it is a picture', answer: ok(SONG), code: 'unsupported_input', retried: false },
  { name: 'an animation', answer: ok(ANIMATION, 'image/gif'), code: 'several_pictures', retried: false },
  { name: 'a file of several pages', answer: ok(PAGES, 'image/tiff'), code: 'several_pictures', retried: false },
  { name: 'random bytes', answer: ok(Buffer.alloc(5000, 0xa5)), code: 'unsupported_input', retried: false },
  { name: 'a picture with too many pixels', answer: ok(hugePng(30_000, 30_000)), code: 'input_too_large', retried: false },
]
