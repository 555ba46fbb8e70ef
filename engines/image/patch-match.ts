/**
 * One resolution of a completion: for each patch that touches the hole a similar patch outside it (PatchMatch, Barnes et al. 2009), and the hole's pixels from
 * the patches that cover them (Wexler et al. 2007).
 */

/** Pixels are RGBA. `hole` is 1 where they are unknown. */
export type Picture = { width: number; height: number; pixels: Uint8Array; hole: Uint8Array }

/** Patches are squares of 2 × 3 + 1 pixels. */
export const RADIUS = 3

/** The centres of the patches that lie inside the picture: `targets` touch the hole, `sources` do not. */
export type Patches = { targets: Int32Array; sources: Int32Array; isSource: Uint8Array }

/** By pixel: the source that the target there is matched with, -1 where there is no target, and how much the two differ. */
export type Matches = { sources: Int32Array; differences: Float32Array }

/** The patches of a picture. A patch lies inside the picture as a whole, so none is centred nearer than `RADIUS` to its border. */
export function patchesOf({ width, height, hole }: Picture): Patches {
  const near = spread(hole, width, height)
  const isSource = new Uint8Array(hole.length)
  const found = { targets: new Int32Array(hole.length), sources: new Int32Array(hole.length) }
  let [targets, sources] = [0, 0]
  for (let y = RADIUS; y < height - RADIUS; y++) {
    for (let x = RADIUS, i = y * width + x; x < width - RADIUS; x++, i++) {
      if (near[i]) found.targets[targets++] = i
      else found.sources[sources++] = i
      isSource[i] = near[i] ? 0 : 1
    }
  }
  return { targets: found.targets.slice(0, targets), sources: found.sources.slice(0, sources), isSource }
}

/** 1 wherever a patch has a part of the hole. */
function spread(hole: Uint8Array, width: number, height: number): Uint8Array {
  const rows = new Uint8Array(hole.length)
  const both = new Uint8Array(hole.length)
  for (let y = 0; y < height; y++) spreadLine(hole, rows, y * width, 1, width)
  for (let x = 0; x < width; x++) spreadLine(rows, both, x, width, height)
  return both
}

function spreadLine(from: Uint8Array, to: Uint8Array, start: number, step: number, length: number): void {
  for (let i = 0, left = 0; i < length + RADIUS; i++, left--) {
    if (i < length && from[start + i * step]) left = 2 * RADIUS + 1
    if (i >= RADIUS && left > 0) to[start + (i - RADIUS) * step] = 1
  }
}

/** A source for every target, at random. There has to be a source. */
export function anyMatches({ hole }: Picture, { targets, sources }: Patches, random: () => number): Matches {
  const matches: Matches = { sources: new Int32Array(hole.length).fill(-1), differences: new Float32Array(hole.length) }
  for (const target of targets) matches.sources[target] = sources[Math.floor(random() * sources.length)] as number
  return matches
}

/** Matches of a picture from those of the same in half the size. */
export function finerMatches(coarse: Matches, half: Picture, picture: Picture, patches: Patches, random: () => number): Matches {
  const { width } = picture
  const matches = anyMatches(picture, patches, random)
  const halfOf = (place: number, length: number): number => Math.min(Math.max(place >> 1, RADIUS), length - 1 - RADIUS)
  for (const target of patches.targets) {
    const [x, y] = [target % width, Math.floor(target / width)]
    const source = coarse.sources[halfOf(y, half.height) * half.width + halfOf(x, half.width)] as number
    if (source < 0) continue
    const found = (2 * Math.floor(source / half.width) + (y & 1)) * width + 2 * (source % half.width) + (x & 1)
    if (patches.isSource[found]) matches.sources[target] = found
  }
  return matches
}

/** Improves the matches: by those of the neighbours, then by chance, ever nearer to the present one; once in each direction. */
export function search(picture: Picture, patches: Patches, matches: Matches, random: () => number): void {
  const { targets } = patches
  measure(picture, patches, matches)
  for (const target of targets) improve(picture, patches, matches, target, 1, random)
  for (let n = targets.length - 1; n >= 0; n--) improve(picture, patches, matches, targets[n] as number, -1, random)
}

/** Measures the matches after the hole's pixels changed. */
export function measure({ width, pixels }: Picture, { targets }: Patches, { sources, differences }: Matches): void {
  for (const target of targets) differences[target] = difference(pixels, width, target, sources[target] as number, Infinity)
}

function improve(
  { width, height, pixels }: Picture,
  { isSource }: Patches,
  { sources, differences }: Matches,
  target: number,
  direction: 1 | -1,
  random: () => number,
): void {
  let best = sources[target] as number
  let least = differences[target] as number
  const tryOut = (candidate: number): void => {
    if (candidate === best || !isSource[candidate]) return
    const found = difference(pixels, width, target, candidate, least)
    if (found >= least) return
    best = candidate
    least = found
  }
  for (const step of [direction, direction * width]) {
    const beside = sources[target - step] as number
    if (beside >= 0) tryOut(beside + step)
  }
  for (let reach = Math.max(width, height); reach >= 1; reach /= 2) {
    const x = Math.floor((best % width) + (2 * random() - 1) * reach)
    const y = Math.floor(best / width + (2 * random() - 1) * reach)
    if (x >= 0 && x < width && y >= 0 && y < height) tryOut(y * width + x)
  }
  sources[target] = best
  differences[target] = least
}

/** The squared differences of two patches, summed; above `limit` no more than that they are. */
function difference(pixels: Uint8Array, width: number, one: number, other: number, limit: number): number {
  let sum = 0
  for (let dy = -RADIUS; dy <= RADIUS; dy++) {
    let i = 4 * (one + dy * width - RADIUS)
    let j = 4 * (other + dy * width - RADIUS)
    for (const end = i + 4 * (2 * RADIUS + 1); i < end; i += 4, j += 4) {
      const r = (pixels[i] as number) - (pixels[j] as number)
      const g = (pixels[i + 1] as number) - (pixels[j + 1] as number)
      const b = (pixels[i + 2] as number) - (pixels[j + 2] as number)
      const a = (pixels[i + 3] as number) - (pixels[j + 3] as number)
      sum += r * r + g * g + b * b + a * a
    }
    if (sum > limit) return sum
  }
  return sum
}

/** Of the differences between matches: those above this share of the typical one hardly count when pixels are averaged. Small values keep textures sharp. */
const SOFTNESS = 0.2

/** Gives each pixel of the hole the mean of what the patches that cover it have there, the better ones more. The matches have to be measured. */
export function vote({ width, height, pixels, hole }: Picture, { targets }: Patches, { sources, differences }: Matches): void {
  const softness = SOFTNESS * typical(targets, differences)
  const weights = new Float32Array(hole.length)
  for (const target of targets) weights[target] = Math.exp(-(differences[target] as number) / softness) + 1e-6
  for (let y = 0, i = 0; y < height; y++) {
    for (let x = 0; x < width; x++, i++) {
      if (!hole[i]) continue
      const [top, bottom] = [Math.max(y - RADIUS, RADIUS), Math.min(y + RADIUS, height - 1 - RADIUS)]
      const [left, right] = [Math.max(x - RADIUS, RADIUS), Math.min(x + RADIUS, width - 1 - RADIUS)]
      let [r, g, b, a, sum] = [0, 0, 0, 0, 0]
      for (let ty = top; ty <= bottom; ty++) {
        for (let tx = left, target = ty * width + left; tx <= right; tx++, target++) {
          const from = 4 * ((sources[target] as number) + i - target)
          const weight = weights[target] as number
          r += weight * (pixels[from] as number)
          g += weight * (pixels[from + 1] as number)
          b += weight * (pixels[from + 2] as number)
          a += weight * (pixels[from + 3] as number)
          sum += weight
        }
      }
      pixels[4 * i] = Math.round(r / sum)
      pixels[4 * i + 1] = Math.round(g / sum)
      pixels[4 * i + 2] = Math.round(b / sum)
      pixels[4 * i + 3] = Math.round(a / sum)
    }
  }
}

/** What three of four matches differ by at most, by a sample of them. */
function typical(targets: Int32Array, differences: Float32Array): number {
  const count = Math.min(targets.length, 4096)
  const sample = Float32Array.from(
    { length: count },
    (_, n) => differences[targets[Math.floor((n * targets.length) / count)] as number] as number,
  )
  return (sample.sort()[Math.floor(count * 0.75)] ?? 0) + 1
}

/** Of 255, a channel: what one patch in twenty at the rim of a bad filling differs by from its match. */
const TORN = 27
/** How many times more than the median of them. In a rough texture, such as gravel, all differ alike and none shows. */
const UNEVEN = 1.8

/**
 * Whether a filling meets its rim: the patches that have pixels of both resemble their matches. Things that are cut off at the hole, and
 * have nothing like them elsewhere, leave some that do not. Found by looking at fillings of photographs; what only a person misses, such
 * as an eye in a face, it does not see. The matches have to be measured.
 */
export function meetsRim({ width, height, hole }: Picture, { sources, differences }: Matches): boolean {
  const rim: number[] = []
  for (let i = 0; i < width * height; i++) if (!hole[i] && (sources[i] as number) >= 0) rim.push(differences[i] as number)
  if (rim.length === 0) return true
  const channels = 3 * (2 * RADIUS + 1) ** 2
  const at = (share: number): number => Math.sqrt((rim[Math.floor(share * rim.length)] as number) / channels)
  rim.sort((a, b) => a - b)
  return at(0.95) <= TORN || at(0.95) <= UNEVEN * at(0.5)
}
