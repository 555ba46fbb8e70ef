/** Warns about environment variables that look like misspelled settings, by edit distance. */

/** The largest edit distance for a name of this length. Short names are too close to variables of other programs. */
function distanceMax(name: string): number {
  return name.length < 7 ? 0 : name.length < 12 ? 1 : 2
}

/** One sentence for each variable that is no setting but close to the name of one. */
export function misspelledSettings(variables: Iterable<string>, settings: readonly string[]): string[] {
  const known = new Set(settings)
  const sentences: string[] = []
  for (const name of variables) {
    if (known.has(name)) continue
    const meant = settings.find(
      (setting) => distanceMax(setting) > 0 && editDistance(name, setting, distanceMax(setting)) <= distanceMax(setting),
    )
    if (meant !== undefined) sentences.push(`${name} is not a setting and has no effect. Did you mean ${meant}?`)
  }
  return sentences
}

/** Edit distance (optimal string alignment: insertions, deletions, replacements, swaps of neighbours); stops early above `most`. */
function editDistance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most) return most + 1
  let before: number[] = []
  let row = Array.from({ length: b.length + 1 }, (_, j) => j)
  for (let i = 1; i <= a.length; i++) {
    const next = [i]
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1]
      const isSwapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]
      const replaced = (row[j - 1] ?? 0) + (isSame ? 0 : 1)
      const swapped = isSwapped ? (before[j - 2] ?? 0) + 1 : Infinity
      next.push(Math.min((row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1, replaced, swapped))
    }
    before = row
    row = next
  }
  return row[b.length] ?? 0
}
