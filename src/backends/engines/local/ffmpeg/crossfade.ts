/**
 * Concatenation and crossfades of the sections of a merge. Only the end of one section and the beginning of the next pass through a
 * crossfade; a chain of crossfades over whole sections would keep most decoded frames in memory.
 */
import type { Section, Target } from './filters.ts'
import { perSecond } from './probe.ts'

const FADE_SECONDS = 0.5

/** The length of a crossfade in seconds, in whole frames of the target: at most half of either section, because both ends of a section may be faded. */
export function overlapOf(one: Section, other: Section, target: Target | null): number {
  const seconds = Math.min(FADE_SECONDS, one.seconds / 2, other.seconds / 2)
  if (!target) return seconds
  const rate = perSecond(target.rate)
  // The addend compensates for rounding just below a whole number of frames.
  return Math.floor(seconds * rate + 1e-6) / rate
}

/** The filters that differ between video and audio. */
type Medium = {
  label: 'v' | 'a'
  streams: string
  split: string
  cut(from: number, to: number): string
  crossfade(seconds: number, tail: string, head: string): string
}

const video = (rate: number): Medium => ({
  label: 'v',
  streams: 'v=1:a=0',
  split: 'split',
  cut: (from, to) => `trim=start_frame=${Math.round(from * rate)}:end_frame=${Math.round(to * rate)},setpts=PTS-STARTPTS`,
  crossfade: (seconds, tail, head) => `[${tail}][${head}]xfade=duration=${seconds}:offset=0`,
})

const audio: Medium = {
  label: 'a',
  streams: 'v=0:a=1',
  split: 'asplit',
  cut: (from, to) => `atrim=start=${from}:end=${to},asetpts=PTS-STARTPTS`,
  crossfade: (seconds, tail, head) =>
    `[${tail}]afade=t=out:d=${seconds}[${tail}out];[${head}]afade=t=in:d=${seconds}[${head}in];[${tail}out][${head}in]amix=normalize=0`,
}

/** The filters from labels `v0`, `v1` … to `v`. `overlaps[n]` is the crossfade in seconds between sections n and n + 1; 0 for a plain cut. */
export const joinVideo = (sections: readonly Section[], overlaps: readonly number[], { rate }: Target): string[] =>
  join(video(perSecond(rate)), sections, overlaps)

/** The filters from labels `a0`, `a1` … to `a`. */
export const joinAudio = (sections: readonly Section[], overlaps: readonly number[]): string[] => join(audio, sections, overlaps)

function join(medium: Medium, sections: readonly Section[], overlaps: readonly number[]): string[] {
  const { label } = medium
  const filters: string[] = []
  const pieces = sections.flatMap(({ seconds }, n) => {
    const [before, after] = [overlaps[n - 1] ?? 0, overlaps[n] ?? 0]
    const own = `${label}${n}`
    if (before === 0 && after === 0) return [own]
    const bounds = { head: [0, before], body: [before, seconds - after], tail: [seconds - after, seconds] } as const
    // A piece below a millisecond is no frame but rounding: two crossfades meet without a body between them.
    const cuts = Object.entries(bounds).filter(([, [from, to]]) => to - from > 0.001)
    filters.push(`[${own}]${medium.split}=${cuts.length}${cuts.map(([name]) => `[${own}${name}]`).join('')}`)
    filters.push(...cuts.map(([name, [from, to]]) => `[${own}${name}]${medium.cut(from, to)}[${own}${name}cut]`))
    if (before > 0) filters.push(`${medium.crossfade(before, `${label}${n - 1}tailcut`, `${own}headcut`)}[${own}faded]`)
    return [...(before > 0 ? [`${own}faded`] : []), ...(cuts.some(([name]) => name === 'body') ? [`${own}bodycut`] : [])]
  })
  return [...filters, `${pieces.map((piece) => `[${piece}]`).join('')}concat=n=${pieces.length}:${medium.streams}[${label}]`]
}
