/** Growth of a series of samples, robust against outliers. */

/** A sample: minutes since the start, and a value. */
export type Sample = { minutes: number; value: number }

/** The median of the slopes between all pairs (Theil–Sen), per minute. NaN for less than two samples. */
export function slope(samples: readonly Sample[]): number {
  const slopes = samples.flatMap((a, n) => samples.slice(n + 1).map((b) => (b.value - a.value) / (b.minutes - a.minutes)))
  slopes.sort((a, b) => a - b)
  const middle = slopes.length / 2
  return ((slopes[Math.floor(middle)] ?? Number.NaN) + (slopes[Math.ceil(middle) - 1] ?? Number.NaN)) / 2
}

/** The samples of the last two thirds of the time: what fills caches in the first third is not growth. */
export function lastTwoThirds(samples: readonly Sample[]): Sample[] {
  const end = samples.at(-1)?.minutes ?? 0
  return samples.filter(({ minutes }) => minutes >= end / 3)
}
