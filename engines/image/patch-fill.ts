/**
 * Fills a hole in a picture with what its surroundings are made of, from the coarsest resolution to the finest (Wexler, Shechtman, Irani: Space-Time Completion
 * of Video, 2007). It continues textures and lines; it knows nothing of what is in the picture and invents nothing.
 */
import { bleed } from './bleed.ts'
import { fillByExemplars } from './exemplar-fill.ts'
import { anyMatches, finerMatches, measure, meetsRim, patchesOf, RADIUS, search, vote, type Matches, type Picture } from './patch-match.ts'
import { removeSeams } from './seamless.ts'

/** The coarsest resolution has at most so many pixels, unless a side would become too short for patches. */
const COARSEST_PIXELS = 40_000
const SHORTEST_SIDE = 4 * RADIUS
/**
 * Rounds of a resolution, each of a search and a vote, while they are few enough: about 2 µs a patch. All resolutions share them, so that
 * the time is bounded.
 */
const ROUNDS = 5
const SEARCHES = 3_000_000
/** Pixels around the hole that are looked at, at least. */
const SURROUNDINGS = 128

/**
 * Fills the hole in place; what lies outside it stays as it is. Black when the hole is everything. False when the filling does not meet
 * what is around it: scraps of other things show.
 */
export function complete(picture: Picture, random: () => number, progress: (percent: number) => void): boolean {
  const part = partAround(picture, SURROUNDINGS)
  if (!part) return true
  const { region, paste } = part
  const levels = pyramid(region)
  let matches: Matches | null = null
  for (const [i, level] of levels.entries()) {
    const patches = patchesOf(level)
    const rounds = Math.min(ROUNDS, Math.floor(SEARCHES / levels.length / patches.targets.length))
    if (patches.sources.length === 0 || (matches === null && rounds === 0)) {
      fillSmoothly(level)
      continue
    }
    const half = levels[i - 1]
    if (half && matches) {
      matches = finerMatches(matches, half, level, patches, random)
      measure(level, patches, matches)
      vote(level, patches, matches)
    } else {
      // Patch by patch takes as long as the square of what is unknown.
      if (patches.targets.length > COARSEST_PIXELS) fillSmoothly(level)
      else fillByExemplars(level)
      matches = anyMatches(level, patches, random)
    }
    for (let round = 0; round < rounds; round++) {
      search(level, patches, matches, random)
      vote(level, patches, matches)
    }
    progress((90 * (i + 1)) / levels.length)
  }
  const fits = matches === null || meetsRim(region, matches)
  if (matches) removeSeams(region, matches)
  paste()
  return fits
}

/**
 * The part of a picture that the hole is filled from, as a picture of its own, and how the filled hole comes back: as much around the hole as it is wide and high
 * itself, and `least` pixels at least. Null when there is no hole.
 */
export function partAround({ width, height, pixels, hole }: Picture, least: number): { region: Picture; paste: () => void } | null {
  let [left, right, top, bottom] = [width, -1, height, -1]
  for (let i = hole.indexOf(1); i >= 0; i = hole.indexOf(1, i + 1)) {
    left = Math.min(left, i % width)
    right = Math.max(right, i % width)
    top = Math.min(top, Math.floor(i / width))
    bottom = Math.floor(i / width)
  }
  if (right < 0) return null
  const around = Math.max(least, right - left, bottom - top)
  ;[left, right, top, bottom] = [
    Math.max(left - around, 0),
    Math.min(right + around, width - 1),
    Math.max(top - around, 0),
    Math.min(bottom + around, height - 1),
  ]
  const size = { width: right - left + 1, height: bottom - top + 1 }
  const region: Picture = { ...size, pixels: new Uint8Array(size.width * size.height * 4), hole: new Uint8Array(size.width * size.height) }
  const rows = Array.from({ length: size.height }, (_, y) => ({ here: y * size.width, there: (top + y) * width + left }))
  for (const { here, there } of rows) {
    region.pixels.set(pixels.subarray(4 * there, 4 * (there + size.width)), 4 * here)
    region.hole.set(hole.subarray(there, there + size.width), here)
  }
  return {
    region,
    paste: () => rows.forEach(({ here, there }) => pixels.set(region.pixels.subarray(4 * here, 4 * (here + size.width)), 4 * there)),
  }
}

/** The picture in falling resolutions, the coarsest first, as long as they have patches outside the hole. */
function pyramid(picture: Picture): Picture[] {
  const levels = [picture]
  for (
    let level = picture;
    level.width * level.height > COARSEST_PIXELS && Math.min(level.width, level.height) >= 2 * SHORTEST_SIDE;
    levels.unshift(level)
  ) {
    level = halved(level)
    if (patchesOf(level).sources.length === 0) break
  }
  return levels
}

/** A pixel of the half is unknown when any of its four is: what is known has nothing of the hole in it. */
function halved({ width, height, pixels, hole }: Picture): Picture {
  const size = { width: width >> 1, height: height >> 1 }
  const half: Picture = { ...size, pixels: new Uint8Array(size.width * size.height * 4), hole: new Uint8Array(size.width * size.height) }
  for (let y = 0, i = 0; y < size.height; y++) {
    for (let x = 0, from = 2 * y * width; x < size.width; x++, i++, from += 2) {
      half.hole[i] =
        (hole[from] as number) | (hole[from + 1] as number) | (hole[from + width] as number) | (hole[from + width + 1] as number)
      for (let c = 0, at = 4 * from; c < 4; c++, at++) {
        half.pixels[4 * i + c] =
          ((pixels[at] as number) +
            (pixels[at + 4] as number) +
            (pixels[at + 4 * width] as number) +
            (pixels[at + 4 * width + 4] as number) +
            2) >>
          2
      }
    }
  }
  return half
}

/** For pictures too small, or too much of them unknown, for patches. */
function fillSmoothly({ width, height, pixels, hole }: Picture): void {
  const filled = bleed(
    pixels,
    hole.map((missing) => (missing ? 0 : 255)),
    width,
    height,
  )
  for (let i = 0; i < hole.length; i++) if (hole[i]) pixels.set(filled.subarray(4 * i, 4 * i + 4), 4 * i)
}
