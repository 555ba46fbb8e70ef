/** Pictures and masks as a provider takes them: decoded here pixel by pixel, where sharp is installed; and what happens where it is not. */
import t from 'tap'
import type { NotMade } from '../../../src/backends/engines/engine.ts'
import { hasSharp, loadSharp, maskFor, pictureOf, type Marks, type Picture } from '../../../src/backends/engines/provider/mask.ts'
import { offersOf } from '../../../src/backends/engines/provider/provided-engine.ts'
import { png } from './media-samples.ts'
import { runOf } from './provider-run.ts'

const { limits } = runOf()
const without = async () => null
const noSharp = hasSharp() ? false : 'sharp is not installed'
// By a name of its own, since tsc must not need the package.
const name = 'sharp'
const sharp = hasSharp() ? (await import(name)).default : null

const picture: Picture = { bytes: png(60, 40), contentType: 'image/png', width: 60, height: 40 }
const left = (x: number): boolean => x < 15
/** The left quarter of the picture, marked in each way. */
const MASKS: Record<string, Buffer> = {
  'by transparency': png(60, 40, { alpha: 255, paint: (x) => (left(x) ? [9, 9, 9, 0] : null) }),
  'by white': png(60, 40, { paint: (x) => (left(x) ? [255, 255, 255] : [0, 0, 0]) }),
  'by white, with an alpha channel that is opaque everywhere': png(60, 40, { alpha: 255, paint: (x) => (left(x) ? [255, 255, 255, 255] : [0, 0, 0, 255]) }),
  'twice as large': png(120, 80, { paint: (x) => (left(x / 2) ? [255, 255, 255] : [0, 0, 0]) }),
  'of a third, rounded': png(20, 13, { paint: (x) => (left(x * 3) ? [255, 255, 255] : [0, 0, 0]) }),
}

async function marked(bytes: Uint8Array, marks: Marks): Promise<{ width: number; height: number; isEdit: (x: number, y: number) => boolean }> {
  const { data, info } = await sharp(bytes).toColourspace('srgb').ensureAlpha().raw().toBuffer({ resolveWithObject: true })
  const at = (x: number, y: number) => (y * info.width + x) * 4
  return { width: info.width, height: info.height, isEdit: (x, y) => (marks === 'transparent' ? data[at(x, y) + 3] === 0 : data[at(x, y)] === (marks === 'white' ? 255 : 0)) }
}

t.test('any mask becomes one of the provider\'s, of the size of the picture', { skip: noSharp }, async (t) => {
  for (const [how, mask] of Object.entries(MASKS)) {
    for (const marks of ['transparent', 'white', 'black'] as const) {
      const drawn = (await maskFor(picture, mask, 0, marks, limits, loadSharp)) as Picture
      const { width, height, isEdit } = await marked(drawn.bytes, marks)
      t.same([width, height], [60, 40], `${how}, ${marks}`)
      t.same([0, 12, 17, 59].map((x) => isEdit(x, 20)), [true, true, false, false], `${how}, ${marks}`)
    }
  }
})

t.test('a mask in the provider\'s form passes as it is, also where sharp is not installed', async (t) => {
  for (const load of hasSharp() ? [loadSharp, without] : [without]) {
    t.equal(((await maskFor(picture, MASKS['by transparency']!, 0, 'transparent', limits, load)) as Picture).bytes, MASKS['by transparency'])
    t.equal(((await maskFor(picture, MASKS['by white']!, 0, 'white', limits, load)) as Picture).bytes, MASKS['by white'])
  }
  t.match(await maskFor(picture, MASKS['by white']!, 0, 'transparent', limits, without), { code: 'not_supported', retryable: false })
  t.match(await maskFor(picture, MASKS['by transparency']!, 4, 'transparent', limits, without), { code: 'not_supported' })
})

t.test('a mask is grown by pixels of the picture', { skip: noSharp }, async (t) => {
  const drawn = (await maskFor(picture, MASKS['by transparency']!, 5, 'transparent', limits, loadSharp)) as Picture
  const { isEdit } = await marked(drawn.bytes, 'transparent')
  t.same([0, 14, 19, 20, 40].map((x) => isEdit(x, 20)), [true, true, true, false, false])
  const dot = png(60, 40, { paint: (x, y) => (x === 30 && y === 20 ? [255, 255, 255] : [0, 0, 0]) })
  const grown = await marked(((await maskFor(picture, dot, 3, 'white', limits, loadSharp)) as Picture).bytes, 'white')
  const pixels = Array.from({ length: 60 * 40 }, (_, i) => grown.isEdit(i % 60, Math.floor(i / 60)))
  t.equal(pixels.filter(Boolean).length, 49, 'in all directions')
  t.ok(grown.isEdit(27, 17) && grown.isEdit(33, 23) && !grown.isEdit(34, 20))
})

t.test('a mask of another aspect ratio, or that cannot be decoded, is the input\'s fault', { skip: noSharp }, async (t) => {
  const code = async (mask: Buffer) => ((await maskFor(picture, mask, 0, 'white', limits, loadSharp)) as NotMade).code
  for (const [width, height] of [[40, 60], [60, 44], [120, 84], [60, 1]] as const) t.equal(await code(png(width, height)), 'mask_mismatch', `${width}x${height}`)
  t.equal(await code(MASKS['by white']!.subarray(0, 70)), 'unsupported_input')
  t.equal(await code(Buffer.from('no picture')), 'unsupported_input')
})

t.test('a picture passes as it is, unless it lies on its side or is of a type that is not taken', { skip: noSharp }, async (t) => {
  const types = ['image/png', 'image/jpeg', 'image/webp']
  const jpeg = await sharp(png(60, 40)).jpeg().toBuffer()
  t.match(await pictureOf(jpeg, types, limits, without), { bytes: jpeg, contentType: 'image/jpeg', width: 60, height: 40 })
  const turned = await sharp(png(60, 40)).withMetadata({ orientation: 6 }).jpeg().toBuffer()
  t.match(await pictureOf(turned, types, limits, loadSharp), { contentType: 'image/png', width: 40, height: 60 })
  t.match(await pictureOf(await sharp(png(60, 40)).gif().toBuffer(), types, limits, loadSharp), { contentType: 'image/png', width: 60, height: 40 })
  t.match(await pictureOf(jpeg, ['image/png'], limits, loadSharp), { contentType: 'image/png' })
  t.match(await pictureOf(turned, types, limits, without), { code: 'unsupported_input' })
  t.match(await pictureOf(turned.subarray(0, 400), types, limits, loadSharp), { code: 'unsupported_input' }, 'cut off')
  t.match(await pictureOf(jpeg, types, { ...limits, pixels: 2399 }, loadSharp), { code: 'input_too_large' })
})

t.test('without sharp there is no inpainting, and the operator learns why', async (t) => {
  const given = { image: { formats: ['png'] }, inpaint: { formats: ['png'] }, video: undefined }
  t.same(offersOf(given, false), { offers: { image: { formats: ['png'] } }, missing: { inpaint: 'sharp, which converts masks, is not installed' } })
  t.same(offersOf(given, true), { offers: { image: { formats: ['png'] }, inpaint: { formats: ['png'] } }, missing: {} })
})
