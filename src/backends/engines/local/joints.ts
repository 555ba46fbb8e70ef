/**
 * How the parts of a merged film are joined. Where two overlap, only the end of the one and the beginning of the other are faded into each other, and all pieces
 * follow in order: a chain of filters over whole parts would hold most of their decoded frames in memory.
 */
import type { Part, Screen } from './filters.ts'
import { perSecond } from './probe.ts'

const FADE_SECONDS = 0.5

/** How many seconds two neighbours are faded into each other: at most half of either, since it may be faded at both ends; whole frames of the screen. */
export function overlapOf(one: Part, other: Part, screen: Screen | null): number {
  const seconds = Math.min(FADE_SECONDS, one.seconds / 2, other.seconds / 2)
  if (!screen) return seconds
  const rate = perSecond(screen.rate)
  // What is added makes up for a whole number of frames that came out a hair less.
  return Math.floor(seconds * rate + 1e-6) / rate
}

/** The filters of pictures or of sound that take a piece of a stream, copy it, and lay one piece over another. */
type Medium = { label: string; outputs: string; split: string; piece(from: number, to: number): string; fade(seconds: number, end: string, beginning: string): string }

const PICTURES = (rate: number): Medium => ({
  label: 'v',
  outputs: 'v=1:a=0',
  split: 'split',
  piece: (from, to) => `trim=start_frame=${Math.round(from * rate)}:end_frame=${Math.round(to * rate)},setpts=PTS-STARTPTS`,
  fade: (seconds, end, beginning) => `[${end}][${beginning}]xfade=duration=${seconds}:offset=0`,
})

const SOUND: Medium = {
  label: 'a',
  outputs: 'v=0:a=1',
  split: 'asplit',
  piece: (from, to) => `atrim=start=${from}:end=${to},asetpts=PTS-STARTPTS`,
  fade: (seconds, end, beginning) =>
    `[${end}]afade=t=out:d=${seconds}[${end}out];[${beginning}]afade=t=in:d=${seconds}[${beginning}in];[${end}out][${beginning}in]amix=normalize=0`,
}

/** The filters that join the labels `v0`, `v1` … to `v`. `overlaps` holds the seconds by which each part overlaps the one before. */
export const joinedPictures = (parts: readonly Part[], overlaps: readonly number[], { rate }: Screen): string[] => joined(PICTURES(perSecond(rate)), parts, overlaps)

/** The filters that join the labels `a0`, `a1` … to `a`. */
export const joinedSound = (parts: readonly Part[], overlaps: readonly number[]): string[] => joined(SOUND, parts, overlaps)

function joined(medium: Medium, parts: readonly Part[], overlaps: readonly number[]): string[] {
  const { label, outputs } = medium
  const filters: string[] = []
  const pieces = parts.flatMap((part, n) => {
    const [before, after] = [overlaps[n - 1] ?? 0, overlaps[n] ?? 0]
    const own = `${label}${n}`
    if (before === 0 && after === 0) return [own]
    const cuts = { head: [0, before], body: [before, part.seconds - after], tail: [part.seconds - after, part.seconds] } as const
    // A thousandth of a second is less than a frame: there is no body between two fades that meet.
    const there = Object.entries(cuts).filter(([, [from, to]]) => to - from > 0.001)
    filters.push(`[${own}]${medium.split}=${there.length}${there.map(([name]) => `[${own}${name}]`).join('')}`)
    filters.push(...there.map(([name, [from, to]]) => `[${own}${name}]${medium.piece(from, to)}[${own}${name}cut]`))
    if (before > 0) filters.push(`${medium.fade(before, `${label}${n - 1}tailcut`, `${own}headcut`)}[${own}faded]`)
    return [...(before > 0 ? [`${own}faded`] : []), ...(there.some(([name]) => name === 'body') ? [`${own}bodycut`] : [])]
  })
  return [...filters, `${pieces.map((piece) => `[${piece}]`).join('')}concat=n=${pieces.length}:${outputs}[${label}]`]
}
