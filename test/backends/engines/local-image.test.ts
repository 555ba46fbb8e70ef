/** The image operations of the local engine on real pictures: each result is decoded and checked, each bad input is a documented failure. */
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { missingOperations } from '../../../engines/image/image-engine.ts'
import { readModels } from '../../../engines/image/models.ts'
import type { ProgramResult } from '../../../engines/image/operation-result.ts'
import { imageOperations, type ImageOperation, type ImageOutcome } from '../../../engines/image/operations.ts'
import { folderFor } from '../../temporary-folder.ts'
import { at, decoded, decodedBytes, distance, open, paint, pngBomb, quarters, sharp, type Raw } from './pictures.ts'

const { models } = readModels({})
const operations = imageOperations(models)
const missing = missingOperations(models)

/** Runs a test where the operation's packages are installed. */
function testOf(kind: ImageOperation, promise: string, prove: (t: Test) => Promise<void>): void {
  const reason = missing[kind]
  void t.test(promise, reason === undefined ? {} : { skip: reason }, prove)
}

type Result = Awaited<ReturnType<typeof decoded>> & Extract<ImageOutcome, { outcome: 'made' }>

const PLAIN = { inpaint: { seed: 1, growMask: 0, format: 'png' }, upscale: { scale: 2, format: 'png' }, background_remove: { background: 'transparent', crop: false, format: 'png' }, ai_edit: { prompt: 'snow', seed: 1, strength: null, format: 'png' } } as const
type More = { request?: object; limits?: { pixels?: number; bytes?: number }; signal?: AbortSignal; progress?: (percent: number) => void }

type Given = [t: Test, kind: ImageOperation, media: Uint8Array | string, mask?: Uint8Array | null, more?: More]

/** Writes what a run reads into a scratch folder, and says what the run gets. */
async function prepared(...[t, kind, media, mask = null, more = {}]: Given) {
  const scratch = await folderFor(t)
  const file = async (name: string, content: Uint8Array | string): Promise<string> => {
    if (typeof content === 'string') return content
    await writeFile(join(scratch, name), content)
    return join(scratch, name)
  }
  const inputs = [{ role: 'media' as const, path: await file('media', media) }, ...(mask ? [{ role: 'mask' as const, path: await file('mask', mask) }] : [])]
  const limits = { pixels: 16_000_000, bytes: 100_000_000, ...more.limits }
  const request = { ...PLAIN[kind], ...more.request }
  return { inputs, scratch, limits, signal: more.signal ?? new AbortController().signal, progress: more.progress ?? (() => {}), request }
}

/** As the engine runs it: in a child process, whose start takes longer than most of these pictures. */
async function run(...given: Given): Promise<ImageOutcome> {
  return (operations[given[1]] as (run: object) => Promise<ImageOutcome>)(await prepared(...given))
}

/** The result of a run that has to succeed; its facts are held against the file. */
async function ran(...given: Given): Promise<Result> {
  const outcome = await run(...given)
  if (outcome.outcome === 'failed') throw new Error(`${outcome.code}: ${outcome.cause}`)
  const picture = await decoded(outcome.path)
  const [t] = given
  t.same(outcome.facts, { width: picture.width, height: picture.height, durationMs: null })
  t.same(outcome.used, { Job: 1000, Second: 0, Megapixel: Math.ceil((picture.width * picture.height) / 1000) })
  t.equal(outcome.contentType, `image/${picture.format}`)
  return { ...picture, ...outcome }
}

/** What the child process does, in this one. */
async function here(...given: Given): Promise<{ result: ProgramResult; path: string }> {
  const { inputs: [media, mask], scratch, limits, progress, request } = await prepared(...given)
  const [, kind] = given
  const { resultOf } = await import('../../../engines/image/operation-result.ts')
  const { run } = (await import(`../../../engines/image/${kind.replace('_', '-')}.ts`)) as { run(job: object, progress: (percent: number) => void): Promise<{ width: number; height: number }> }
  const job = { ...request, input: media?.path, mask: mask?.path ?? '', output: join(scratch, 'result'), pixels: limits.pixels, model: kind === 'ai_edit' ? null : models[kind] }
  return { result: await resultOf(run(job, progress)), path: job.output }
}

/** The result of one that has to succeed. */
async function made(...given: Given): Promise<Awaited<ReturnType<typeof decoded>>> {
  const { result, path } = await here(...given)
  if (result.outcome === 'failed') throw new Error(`${result.code}: ${result.cause}`)
  const picture = await decoded(path)
  given[0].match(result, { width: picture.width, height: picture.height })
  return picture
}

/** A picture as the programs read it, in this process. */
async function read(t: Test, file: Uint8Array): Promise<Raw & { hasAlpha: boolean }> {
  const { decode } = await import('../../../engines/image/codec.ts')
  const path = join(await mkdtemp(join(tmpdir(), 'tollgate-')), 'media')
  t.teardown(() => rm(join(path, '..'), { recursive: true }))
  await writeFile(path, file)
  const { opaque, ...picture } = await decode(path, 16_000_000)
  return { ...picture, hasAlpha: !opaque }
}

async function codeOf(...given: Given): Promise<string> {
  const { result } = await here(...given)
  return result.outcome === 'failed' ? result.code : result.outcome
}

/** The same by the child process. */
async function ranCode(...given: Given): Promise<string> {
  const outcome = await run(...given)
  return outcome.outcome === 'failed' ? `${outcome.code}${outcome.retryable ? ', retryable' : ''}` : outcome.outcome
}

const png = (picture: Raw): Promise<Buffer> => open(picture).png().toBuffer()
const maskOf = (width: number, height: number, marked: (x: number, y: number) => boolean): Promise<Buffer> => png(paint(width, height, (x, y) => (marked(x, y) ? [255, 255, 255] : [0, 0, 0])))
/** A mask that marks nothing: the picture comes out as it was read. */
const nothing = (width: number, height: number): Promise<Buffer> => maskOf(width, height, () => false)

const RED = [255, 0, 0, 255]
const corners = ({ width, height, ...rest }: Raw): readonly (readonly number[])[] => [[0, 0], [width - 1, 0], [0, height - 1], [width - 1, height - 1]].map(([x = 0, y = 0]) => at({ width, height, ...rest }, x, y))
const QUARTERS = [RED, [0, 255, 0, 255], [0, 0, 255, 255], [255, 255, 0, 255]]

/** The photograph of a flower that the weights of upscale come with (MIT, github.com/thekevinscott/UpscalerJS), 128 by 128 pixels. */
const flower = (): Promise<Buffer> => readFile(join(import.meta.dirname, 'flower.png'))

/** A head and shoulders before a wall, light above and darker below. */
function portrait(width: number, height: number): Raw {
  const within = (x: number, y: number, cx: number, cy: number, rx: number, ry: number) => ((x / width - cx) / rx) ** 2 + ((y / height - cy) / ry) ** 2 < 1
  return paint(width, height, (x, y) => {
    if (within(x, y, 0.5, 0.3, 0.17, 0.12) && y < 0.3 * height) return [70, 45, 30]
    if (within(x, y, 0.44, 0.36, 0.02, 0.015) || within(x, y, 0.56, 0.36, 0.02, 0.015)) return [40, 40, 40]
    if (within(x, y, 0.5, 0.38, 0.16, 0.17)) return [230, 185, 155]
    return within(x, y, 0.5, 1, 0.4, 0.38) ? [60, 70, 130] : [190 - (60 * y) / height, 210 - (60 * y) / height, 235 - (50 * y) / height]
  })
}

testOf('inpaint', 'pictures of every supported format are read, whatever the file is called', async (t) => {
  const picture = open(quarters(64, 32))
  const files = { png: picture.clone().png(), jpeg: picture.clone().jpeg({ quality: 100 }), webp: picture.clone().webp({ lossless: true }), avif: picture.clone().avif({ quality: 95 }), gif: picture.clone().gif(), tiff: picture.clone().tiff() }
  for (const [format, file] of Object.entries(files)) {
    const result = await read(t, await file.toBuffer())
    t.ok(corners(result).every((colour, i) => distance(colour, QUARTERS[i] ?? []) <= 6), format)
  }
})

testOf('inpaint', 'a picture that the camera turned comes out upright, for each orientation of EXIF', async (t) => {
  const upright = open(quarters(64, 32))
  const transposed = open({ width: 32, height: 64, pixels: await upright.clone().rotate(90).raw().toBuffer() })
  // The ways in which a camera stores what is undone by the orientations 1 to 8.
  const stored = [upright.clone(), upright.clone().flop(), upright.clone().rotate(180), upright.clone().flip(), transposed.clone().flop(), upright.clone().rotate(270), transposed.clone().flip(), upright.clone().rotate(90)]
  for (const [i, picture] of stored.entries()) {
    const file = await picture.jpeg({ quality: 100, chromaSubsampling: '4:4:4' }).withMetadata({ orientation: i + 1 }).toBuffer()
    const result = await read(t, file)
    t.same([result.width, result.height], [64, 32], `orientation ${i + 1}`)
    t.ok(corners(result).every((colour, corner) => distance(colour, QUARTERS[corner] ?? []) <= 6), `orientation ${i + 1}`)
  }
})

testOf('inpaint', 'CMYK, wide gamut, 16 bits and grey become sRGB of the same look', async (t) => {
  const colour = open(paint(32, 32, () => [200, 100, 100]))
  const cmyk = await read(t, await colour.clone().toColourspace('cmyk').jpeg({ quality: 100 }).toBuffer())
  t.ok(distance(at(cmyk, 16, 16), [200, 100, 100, 255]) < 25, `CMYK: ${at(cmyk, 16, 16)}`)
  const wide = await read(t, await colour.clone().withIccProfile('p3').png().toBuffer())
  t.ok(distance(at(wide, 16, 16), [200, 100, 100, 255]) <= 2, `Display P3: ${at(wide, 16, 16)}`)
  const deep = await read(t, await colour.clone().toColourspace('rgb16').png().toBuffer())
  t.same(at(deep, 16, 16), [200, 100, 100, 255], '16 bits')
  const grey = await read(t, await open(paint(32, 32, () => [90, 90, 90])).toColourspace('b-w').png().toBuffer())
  t.same(at(grey, 16, 16), [90, 90, 90, 255], 'grey')
})

testOf('inpaint', 'transparency is kept, and is not invented', async (t) => {
  const see = paint(40, 40, (x) => [255, 0, 0, x < 20 ? 0 : 128])
  const result = await made(t, 'inpaint', await png(see), await nothing(40, 40), { request: { format: 'webp' } })
  t.ok(result.hasAlpha)
  t.same([at(result, 5, 5)[3], at(result, 30, 5)[3]], [0, 128])
  t.notOk((await made(t, 'inpaint', await open(see).removeAlpha().png().toBuffer(), await nothing(40, 40))).hasAlpha)
})

testOf('inpaint', 'the smallest and the widest pictures are read', async (t) => {
  t.same(at(await read(t, await png(paint(1, 1, () => RED))), 0, 0), RED)
  const wide = await read(t, await png(quarters(8000, 30)))
  t.same([wide.width, wide.height, ...corners(wide)], [8000, 30, ...QUARTERS])
})

testOf('inpaint', 'an animation fails as several_pictures', async (t) => {
  const frames = paint(20, 60, (_, y) => (y < 20 ? RED : [0, 0, 255]))
  const animation = await sharp?.(frames.pixels, { raw: { width: 20, height: 60, channels: 4, pageHeight: 20 } }).gif({ delay: [100, 100, 100] }).toBuffer()
  t.equal((await sharp?.(animation).metadata())?.pages, 2, 'equal frames are one')
  await t.rejects(read(t, animation ?? Buffer.alloc(0)), { code: 'several_pictures', details: { found: { pictures: 2 } } })
})

testOf('inpaint', 'what is no picture, broken or cut off fails as unsupported_input', async (t) => {
  const noise = paint(200, 200, (x, y) => [(x * 7919 + y * 104_729) % 256, (x * y) % 256, (x ^ y) % 256])
  const [jpeg, whole, webp] = [await open(noise).jpeg().toBuffer(), await png(noise), await open(noise).webp().toBuffer()]
  const corrupt = Buffer.from(whole)
  corrupt.fill(0x55, whole.length / 2, whole.length / 2 + 64)
  const inputs = {
    'text': Buffer.from('no picture at all'),
    'nothing': Buffer.alloc(0),
    'a cut JPEG': jpeg.subarray(0, jpeg.length / 2),
    'a cut PNG': whole.subarray(0, whole.length / 2),
    'a cut WebP': webp.subarray(0, webp.length / 2),
    'a corrupt PNG': corrupt,
    'the beginning of a JPEG': Buffer.concat([jpeg.subarray(0, 20), Buffer.alloc(2000, 7)]),
    'an SVG': Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect width="10" height="10" fill="red"/></svg>'),
    'an SVG that names a file': Buffer.from('<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><image href="file:///etc/hostname"/></svg>'),
    'a PDF': Buffer.from('%PDF-1.4\n1 0 obj<</Type/Catalog>>endobj\ntrailer<</Root 1 0 R>>\n%%EOF\n'),
    'a film': Buffer.from('0000001c66747970697[6f6d0000020069736f6d69736f32'.replace('[', ''), 'hex'),
    'raw numbers': Buffer.from('P6\n2 2\n255\nabcdefghijkl'),
  }
  for (const [name, input] of Object.entries(inputs)) await t.rejects(read(t, input), { code: 'unsupported_input' }, name)
})

testOf('inpaint', 'more pixels than the limit fail as input_too_large, by the header alone', async (t) => {
  t.equal(await ranCode(t, 'inpaint', pngBomb(60_000, 60_000), await nothing(10, 10)), 'input_too_large')
  t.equal(await codeOf(t, 'inpaint', await png(quarters(101, 100)), await nothing(101, 100), { limits: { pixels: 10_000 } }), 'input_too_large')
  t.equal(await codeOf(t, 'inpaint', await png(quarters(100, 100)), await nothing(100, 100), { limits: { pixels: 10_000 } }), 'made')
  t.equal(await codeOf(t, 'inpaint', await png(quarters(100, 100)), pngBomb(30_000, 30_000)), 'input_too_large', 'a mask')
  t.equal(await codeOf(t, 'upscale', await png(quarters(51, 50)), null, { limits: { pixels: 10_000 } }), 'result_too_large', 'a result')
})

testOf('inpaint', 'a result of more bytes than the limit fails as result_too_large, and one that its format cannot hold', async (t) => {
  const noise = paint(300, 300, (x, y) => [(x * 7919 + y * 104_729) % 251, (x * x * y) % 241, (x * y * y) % 239])
  t.equal(await ranCode(t, 'inpaint', await png(noise), await nothing(300, 300), { limits: { bytes: 20_000 } }), 'result_too_large')
  t.equal(await codeOf(t, 'inpaint', await png(quarters(17_000, 2)), await nothing(17_000, 2), { request: { format: 'webp' } }), 'result_too_large')
})

testOf('inpaint', 'a program reads nothing outside its scratch folder and its packages', async (t) => {
  const elsewhere = await folderFor(t)
  await writeFile(join(elsewhere, 'secret.png'), await png(quarters(10, 10)))
  const outcome = await run(t, 'inpaint', join(elsewhere, 'secret.png'), await nothing(10, 10))
  t.match(outcome, { outcome: 'failed', code: 'internal', retryable: true, cause: /ERR_ACCESS_DENIED/ })
})

testOf('inpaint', 'an aborted run rejects with the reason', async (t) => {
  const reason = new Error('canceled')
  await t.rejects(run(t, 'inpaint', await png(quarters(10, 10)), await nothing(10, 10), { signal: AbortSignal.abort(reason) }), reason)
  const abort = new AbortController()
  const progress = (): void => abort.abort(reason)
  await t.rejects(run(t, 'inpaint', await png(quarters(500, 500)), await maskOf(500, 500, (x) => x > 250), { signal: abort.signal, progress }), reason)
})

testOf('inpaint', 'a hole is filled so that nobody sees where it was, and all around it stays as it is', async (t) => {
  const inHole = (x: number, y: number): boolean => (x - 100) ** 2 + (y - 80) ** 2 < 40 ** 2
  const sky = (x: number, y: number): readonly number[] => [60 + 0.4 * x, 90 + 0.6 * y, 200 - 0.3 * x]
  const spoilt = paint(200, 160, (x, y) => (inHole(x, y) ? [255, 0, 255] : sky(x, y)))
  const result = await made(t, 'inpaint', await png(spoilt), await maskOf(200, 160, inHole))
  const expected = paint(200, 160, sky)
  let [most, sum, count] = [0, 0, 0]
  for (let y = 0; y < 160; y++) {
    for (let x = 0; x < 200; x++) {
      const off = distance(at(result, x, y), at(expected, x, y))
      if (!inHole(x, y)) most = Math.max(most, off)
      else {
        sum += off
        count++
      }
    }
  }
  t.equal(most, 0, 'around it')
  t.ok(sum / count < 8, `in it the mean difference is ${sum / count}`)
})

testOf('inpaint', 'textures are continued', async (t) => {
  const stripes = (x: number): readonly number[] => (x % 16 < 8 ? [20, 20, 20] : [235, 235, 235])
  const inHole = (x: number, y: number): boolean => x > 60 && x < 130 && y > 50 && y < 110
  const result = await made(t, 'inpaint', await png(paint(192, 160, (x, y) => (inHole(x, y) ? [255, 0, 0] : stripes(x)))), await maskOf(192, 160, inHole))
  let wrong = 0
  for (let y = 51; y < 110; y++) for (let x = 61; x < 130; x++) if (distance(at(result, x, y), [...stripes(x), 255]) > 40) wrong++
  t.ok(wrong / (59 * 69) < 0.02, `${wrong} pixels are not of the stripes`)
})

testOf('inpaint', 'a mask marks by its transparent pixels if it has any, by its white ones otherwise, and is scaled', async (t) => {
  const dotted = paint(120, 80, (x, y) => (x >= 50 && x < 70 && y >= 30 && y < 50 ? RED : [0, 120, 0]))
  const inDot = (x: number, y: number): boolean => x >= 24 && x < 36 && y >= 14 && y < 26
  const masks = {
    white: await maskOf(60, 40, inDot),
    grey: await open(paint(60, 40, (x, y) => (inDot(x, y) ? [255, 255, 255] : [0, 0, 0]))).toColourspace('b-w').png().toBuffer(),
    transparent: await png(paint(60, 40, (x, y) => [255, 255, 255, inDot(x, y) ? 0 : 255])),
  }
  for (const [name, mask] of Object.entries(masks)) {
    const result = await made(t, 'inpaint', await png(dotted), mask)
    t.ok(distance(at(result, 60, 40), [0, 120, 0, 255]) <= 3, name)
  }
  const inverse = await made(t, 'inpaint', await png(dotted), await png(paint(60, 40, (x, y) => [0, 0, 0, inDot(x, y) ? 0 : 255])))
  t.ok(distance(at(inverse, 60, 40), [0, 120, 0, 255]) <= 3, 'black where it is not transparent')
})

testOf('inpaint', 'a mask grows by pixels', async (t) => {
  const dotted = await png(paint(120, 80, (x, y) => ((x - 60) ** 2 + (y - 40) ** 2 < 100 ? RED : [0, 120, 0])))
  const small = await maskOf(120, 80, (x, y) => (x - 60) ** 2 + (y - 40) ** 2 < 36)
  const reds = async (growMask: number): Promise<number> => {
    const { pixels } = await made(t, 'inpaint', dotted, small, { request: { growMask } })
    return pixels.filter((value, i) => i % 4 === 0 && value > 128).length
  }
  t.equal(await reds(6), 0)
  t.ok((await reds(0)) > 100)
})

testOf('inpaint', 'the time to grow a mask does not depend on how far it grows, or on how many pieces it has', async (t) => {
  const dithered = await maskOf(1000, 1000, (x, y) => (x + y) % 2 === 0)
  t.equal(await codeOf(t, 'inpaint', await png(quarters(1000, 1000)), dithered, { request: { growMask: 512 } }), 'unsupported_input', 'it covers everything')
})

testOf('inpaint', 'a mask of another aspect ratio fails as mask_mismatch, one that covers everything as unsupported_input', async (t) => {
  const picture = await png(quarters(100, 50))
  t.equal(await codeOf(t, 'inpaint', picture, await maskOf(100, 60, (x) => x < 10)), 'mask_mismatch')
  t.equal(await codeOf(t, 'inpaint', picture, await maskOf(50, 100, (x) => x < 10)), 'mask_mismatch')
  t.equal(await codeOf(t, 'inpaint', picture, await maskOf(100, 50, () => true)), 'unsupported_input')
  t.equal(await codeOf(t, 'inpaint', picture, await maskOf(33, 17, (x) => x < 3)), 'made', 'rounded to whole pixels it is the same')
  t.equal(await codeOf(t, 'inpaint', picture, Buffer.from('no mask')), 'unsupported_input')
})

testOf('inpaint', 'holes in pictures too small for patches are filled smoothly', async (t) => {
  for (const [width, height] of [[2, 2], [3, 9], [9, 3], [7, 7], [8000, 5]] as const) {
    const result = await made(t, 'inpaint', await png(paint(width, height, (x) => (x === 0 ? RED : [0, 120, 0]))), await maskOf(width, height, (x) => x === 0))
    t.ok(distance(at(result, 0, 0), [0, 120, 0, 255]) <= 3, `${width} by ${height}`)
  }
})

testOf('inpaint', 'a hole whose surroundings have nothing that fits fails as cannot_fill; textures and plain areas do not', async (t) => {
  /** A patchwork of one colour each, before a plain wall. */
  const patchwork = paint(160, 120, (x, y) => {
    const n = Math.floor(x / 7) * 31 + Math.floor(y / 9) * 17
    return Math.hypot(x - 80, y - 60) < 44 ? [(n * 7919) % 256, (n * 104_729) % 256, (n * 1_299_709) % 256] : [200, 205, 210]
  })
  const across = await maskOf(160, 120, (x, y) => x > 70 && x < 150 && y > 40 && y < 80)
  t.equal(await codeOf(t, 'inpaint', await png(patchwork), across), 'cannot_fill')
  const whole = await maskOf(160, 120, (x, y) => Math.hypot(x - 80, y - 60) < 48)
  t.equal(await codeOf(t, 'inpaint', await png(patchwork), whole), 'made', 'all of it and nothing else')
})

testOf('inpaint', 'a mesh over the whole picture is filled without trying every patch for each of its pixels', async (t) => {
  const sky = (x: number, y: number): readonly number[] => [60 + 0.1 * x, 90 + 0.1 * y, 200 - 0.1 * x]
  const inMesh = (x: number, y: number): boolean => x % 12 < 4 || y % 12 < 4
  const result = await made(t, 'inpaint', await png(paint(600, 600, (x, y) => (inMesh(x, y) ? RED : sky(x, y)))), await maskOf(600, 600, inMesh))
  t.ok(distance(result.pixels, paint(600, 600, sky).pixels) < 20)
})

testOf('inpaint', 'the same seed gives the same result', async (t) => {
  const noise = await png(paint(90, 90, (x, y) => [(x * 7919 + y * 104_729) % 256, (x * y) % 256, (x ^ y) % 256]))
  const mask = await maskOf(90, 90, (x, y) => (x - 40) ** 2 + (y - 40) ** 2 < 300)
  const fill = async (seed: number): Promise<Uint8Array> => (await made(t, 'inpaint', noise, mask, { request: { seed } })).pixels
  const first = await fill(7)
  t.same(await fill(7), first)
  t.not(distance(await fill(8), first), 0)
})

testOf('upscale', 'a picture is enlarged 2, 3 and 4 times, better than by a filter', async (t) => {
  const original = await decodedFlower()
  for (const scale of [2, 3, 4] as const) {
    const [width, height] = [120 / scale, 120 / scale]
    const small = await open(original).extract({ left: 0, top: 0, width: 120, height: 120 }).resize(width, height).png().toBuffer()
    const result = await made(t, 'upscale', small, null, { request: { scale } })
    t.same([result.width, result.height, result.hasAlpha], [120, 120, false])
    const plain = await decodedBytes(await open(await decodedBytes(small)).resize(120, 120, { kernel: 'cubic' }).png().toBuffer())
    t.ok(error(result, original) < 0.95 * error(plain, original), `scale ${scale}: ${error(result, original)}, bicubic ${error(plain, original)}`)
  }
})

const decodedFlower = async (): Promise<Raw> => decodedBytes(await flower())

/** The mean squared difference to the upper left part of a larger picture. */
function error(picture: Raw, original: Raw): number {
  let sum = 0
  for (let y = 0; y < picture.height; y++) for (let x = 0; x < picture.width; x++) at(picture, x, y).forEach((value, c) => (sum += (value - (at(original, x, y)[c] ?? 0)) ** 2))
  return sum / (picture.width * picture.height * 3)
}

testOf('upscale', 'tiles leave no seam: the picture is the same as in one piece', async (t) => {
  const { enlarge, openEnlarger } = await import('../../../engines/image/super-resolution.ts')
  const pixels = await open(await decodedFlower()).extract({ left: 16, top: 32, width: 96, height: 64 }).raw().toBuffer()
  const original = { width: 96, height: 64, pixels, opaque: true }
  const enlarger = await openEnlarger(models.upscale)
  const tiles = { ...enlarger, model: { ...models.upscale, tile: 60 } }
  for (const scale of [2, 3, 4]) {
    const whole = await enlarge(enlarger, original, scale, () => {})
    const tiled = await enlarge(tiles, original, scale, () => {})
    t.ok(distance(tiled.pixels, whole.pixels) <= 2, `scale ${scale}: ${distance(tiled.pixels, whole.pixels)} of 255`)
  }
})

testOf('upscale', 'tiles cover a picture once, each within its size', async (t) => {
  const { tilesOf } = await import('../../../engines/image/super-resolution.ts')
  for (const [width, height, tile] of [[1, 1, 300], [8000, 3, 300], [3, 8000, 64], [1000, 700, 300], [640, 640, 32]] as const) {
    const covered = new Uint8Array(width * height)
    const tiling = tilesOf({ width, height }, { fixed: null, model: { ...models.upscale, tile } })
    t.ok(tiling.width <= tile && tiling.height <= tile && tiling.width % 16 === 0 || tiling.width === tile || tiling.height === tile)
    for (const tile of tiling.tiles) {
      t.ok(tile.width + 16 <= tiling.width && tile.height + 16 <= tiling.height)
      for (let y = tile.y; y < tile.y + tile.height; y++) for (let x = tile.x; x < tile.x + tile.width; x++) covered[y * width + x] = (covered[y * width + x] ?? 0) + 1
    }
    t.ok(covered.every((times) => times === 1), `${width} by ${height}`)
  }
})

testOf('upscale', 'transparency is enlarged too, and colours of invisible pixels do not show at its edge', async (t) => {
  const disc = (x: number, y: number): readonly number[] => ((x - 20) ** 2 + (y - 20) ** 2 < 144 ? [200, 40, 40, 255] : [0, 255, 0, 0])
  const result = await made(t, 'upscale', await png(paint(40, 40, disc)), null, { request: { scale: 4, format: 'webp' } })
  t.same([result.width, result.height, result.hasAlpha], [160, 160, true])
  t.same([at(result, 80, 80)[3], at(result, 2, 2)[3]], [255, 0])
  for (let x = 0; x < 160; x++) if (at(result, x, 80)[3] > 40) t.ok(at(result, x, 80)[1] < 80, `green at ${x}: ${at(result, x, 80)}`)
})

testOf('upscale', 'the smallest and the widest pictures are enlarged, in every format, with progress', async (t) => {
  const dot = await made(t, 'upscale', await png(paint(1, 1, () => RED)), null, { request: { scale: 3, format: 'jpeg' } })
  t.same([dot.width, dot.height, dot.format], [3, 3, 'jpeg'])
  t.ok(distance(at(dot, 1, 1), RED) < 20)
  const heard: number[] = []
  const wide = await ran(t, 'upscale', await png(quarters(800, 16)), null, { progress: (percent) => heard.push(percent) })
  t.same([wide.width, wide.height], [1600, 32])
  t.ok(corners(wide).every((colour, i) => distance(colour, QUARTERS[i] ?? []) < 20))
  t.ok(heard.length > 1 && heard.every((percent, i) => percent >= (heard[i - 1] ?? 0) && percent <= 99), `${heard}`)
})

testOf('background_remove', 'the subject stays, the background goes, and its edge has nothing of the background in it', async (t) => {
  const original = portrait(480, 640)
  const result = await made(t, 'background_remove', await png(original))
  t.same([result.width, result.height, result.hasAlpha], [480, 640, true])
  t.equal(at(result, 240, 300)[3], 255, 'the face')
  t.ok(distance(at(result, 240, 300), at(original, 240, 300)) <= 1)
  t.equal(at(result, 240, 600)[3], 255, 'the chest')
  for (const [x, y] of [[0, 0], [479, 0], [10, 400], [470, 400]] as const) t.ok(at(result, x, y)[3] <= 2, `${x}, ${y}: ${at(result, x, y)}`)
  const row = Array.from({ length: 480 }, (_, x) => at(result, x, 300)).filter(([, , , alpha]) => alpha > 0 && alpha < 255)
  t.ok(row.length < 24, `the edge is ${row.length} pixels wide`)
  t.ok(row.every(([r, , b, alpha]) => alpha < 60 || r > b), 'skin, not wall')
})

testOf('background_remove', 'a photograph is cropped to its subject, on a colour', async (t) => {
  const result = await made(t, 'background_remove', await flower(), null, { request: { format: 'jpeg', crop: true, background: '#2060ff' } })
  t.notOk(result.hasAlpha)
  t.ok(result.width <= 128 && result.height < 128 && result.height > 90, `${result.width} by ${result.height}`)
  t.ok(distance(at(result, 0, 0), [0x20, 0x60, 0xff, 255]) < 12, `${at(result, 0, 0)}`)
})

testOf('background_remove', 'a crop is no larger than the subject, and what was transparent stays so', async (t) => {
  const disc = paint(300, 200, (x, y) => ((x - 200) ** 2 + (y - 90) ** 2 < 50 ** 2 ? [200, 60, 30, x < 200 ? 255 : 128] : [0, 0, 0, 0]))
  const result = await made(t, 'background_remove', await png(disc), null, { request: { crop: true } })
  t.ok(Math.abs(result.width - 100) <= 8 && Math.abs(result.height - 100) <= 8, `${result.width} by ${result.height}`)
  t.ok(at(result, 20, 50)[3] > 240 && at(result, 80, 50)[3] <= 128 && at(result, 0, 0)[3] === 0)
})

testOf('background_remove', 'a picture without a subject becomes background and stays whole', async (t) => {
  const result = await made(t, 'background_remove', await png(paint(90, 60, () => [120, 160, 200])), null, { request: { crop: true } })
  t.same([result.width, result.height], [90, 60])
  t.ok(result.pixels.every((value, i) => i % 4 !== 3 || value === 0))
})

testOf('ai_edit', 'a scene is laid over a picture of any format as the strength says, where the mask marks it alone, and is marked as a preview', async (t) => {
  const original = quarters(120, 80)
  const edited = async (request: object, mask: Buffer | null = null): Promise<Raw> => made(t, 'ai_edit', await open(original).webp({ lossless: true }).toBuffer(), mask, { request })
  /** The mean difference of the colours of the left or right half, above the watermark. */
  const change = (after: Raw, half: 0 | 1): number => {
    let sum = 0
    for (let y = 0; y < 50; y++) for (let x = 60 * half; x < 60 * (half + 1); x++) sum += distance(at(after, x, y), at(original, x, y))
    return sum / (50 * 60)
  }
  const none = await ran(t, 'ai_edit', await png(original), null, { request: { strength: 0 } })
  t.same([change(none, 0), change(none, 1)], [0, 0])
  t.not(distance(none.pixels, original.pixels), 0, 'the watermark')
  const [some, all] = [await edited({}), await edited({ strength: 1, format: 'webp' })]
  t.ok(change(some, 0) > 1 && change(all, 0) > 1.3 * change(some, 0))
  const masked = await edited({ strength: 1 }, await maskOf(60, 40, (x) => x < 28))
  t.same([change(masked, 0) > 1, change(masked, 1)], [true, 0])
  t.equal(await codeOf(t, 'ai_edit', await png(original), await maskOf(20, 20, () => true)), 'mask_mismatch', 'a mask of another shape')
})

t.test('operations whose packages are not installed are named with what to install', async (t) => {
  const elsewhere = await folderFor(t)
  await cp(join(import.meta.dirname, '../../../engines/image/packages.ts'), join(elsewhere, 'packages.ts'))
  const { missingHere } = (await import(join(elsewhere, 'packages.ts'))) as { missingHere: (withNetwork: boolean) => string | null }
  t.equal(missingHere(true), 'sharp and onnxruntime-node are not installed: npm install --include=optional')
  t.equal(missingHere(false), 'sharp is not installed: npm install --include=optional')
})
