/**
 * The first filling of a small picture, patch by patch from the edge of the hole inwards (Criminisi, Pérez, Toyama: Object Removal by
 * Exemplar-Based Inpainting, 2004). Patches with strong edges come first, so that the lines that run into the hole are continued.
 */
import { patchesOf, RADIUS, type Picture } from './patch-match.ts'

/** At most so many patches are compared with one, evenly chosen. */
const SOURCES = 20_000
/** How much a source at the other end of the picture has to be better than one right here: squared differences of 255, a pixel. */
const DISTANCE = 5000

type Filling = { picture: Picture; unknown: Set<number>; confidence: Float32Array; offsets: readonly number[]; sources: readonly number[] }

/** Fills the hole in place. There has to be a whole patch outside of it. */
export function fillByExemplars(picture: Picture): void {
  const { width, hole, pixels } = picture
  const all = patchesOf(picture).sources
  const stride = Math.ceil(all.length / SOURCES)
  const side = Array.from({ length: 2 * RADIUS + 1 }, (_, n) => n - RADIUS)
  const filling: Filling = {
    picture,
    unknown: new Set([...hole.keys()].filter((i) => hole[i])),
    confidence: Float32Array.from(hole, (missing) => (missing ? 0 : 1)),
    offsets: side.flatMap((dy) => side.map((dx) => dy * width + dx)),
    sources: Array.from(all).filter((_, n) => n % stride === 0),
  }
  const { unknown, confidence, offsets } = filling
  while (unknown.size > 0) {
    const centre = mostUrgent(filling)
    const source = nearest(filling, centre)
    const sure = offsets.reduce((sum, offset) => sum + (confidence[centre + offset] as number), 0) / offsets.length
    for (const offset of offsets) {
      const i = centre + offset
      if (!unknown.delete(i)) continue
      pixels.copyWithin(4 * i, 4 * (source + offset), 4 * (source + offset) + 4)
      confidence[i] = sure
    }
  }
}

/** The patch at the edge of the hole that is known best and has the strongest edges. */
function mostUrgent(filling: Filling): number {
  const { picture, unknown } = filling
  const { width, height, hole } = picture
  let [best, highest] = [-1, -1]
  for (const i of unknown) {
    const x = i % width
    const inside =
      (x === 0 || unknown.has(i - 1)) &&
      (x === width - 1 || unknown.has(i + 1)) &&
      (i < width || unknown.has(i - width)) &&
      (i + width >= hole.length || unknown.has(i + width))
    if (inside) continue
    const centre = within(Math.floor(i / width), height) * width + within(x, width)
    const found = urgency(filling, centre)
    if (found > highest) [best, highest] = [centre, found]
  }
  return best
}

/** The nearest place to which a patch can be centred. */
function within(place: number, length: number): number {
  return Math.min(Math.max(place, RADIUS), length - 1 - RADIUS)
}

function urgency({ picture, unknown, confidence, offsets }: Filling, centre: number): number {
  const { width, pixels } = picture
  let [sure, steepest] = [0, 0]
  for (const offset of offsets) {
    const i = centre + offset
    if (unknown.has(i)) continue
    sure += confidence[i] as number
    for (const beside of [i + 1, i + width]) {
      if (4 * beside >= pixels.length || unknown.has(beside)) continue
      for (let c = 0; c < 3; c++)
        steepest = Math.max(steepest, Math.abs((pixels[4 * i + c] as number) - (pixels[4 * beside + c] as number)))
    }
  }
  return sure * (25 + steepest)
}

/** The source that is most like the known pixels of a patch; among equals a near one. */
function nearest({ picture, unknown, offsets, sources }: Filling, centre: number): number {
  const { width, height, pixels } = picture
  const known = offsets.filter((offset) => !unknown.has(centre + offset))
  const perPixel = (known.length * DISTANCE) / Math.max(width, height)
  let [best, least] = [sources[0] as number, Infinity]
  for (const source of sources) {
    let sum = perPixel * Math.hypot((source % width) - (centre % width), Math.floor(source / width) - Math.floor(centre / width))
    for (let n = 0; n < known.length && sum < least; n++) {
      const [i, j] = [4 * (centre + (known[n] as number)), 4 * (source + (known[n] as number))]
      for (let c = 0; c < 4; c++) sum += ((pixels[i + c] as number) - (pixels[j + c] as number)) ** 2
    }
    if (sum < least) [best, least] = [source, sum]
  }
  return best
}
