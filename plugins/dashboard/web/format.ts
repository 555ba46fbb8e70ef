/** Numbers, money and times as the page shows them: in English as the rest of it, by the habits of the browser's own English. */

export const LANGUAGE = navigator.languages.find((language) => /^en\b/.test(language)) ?? 'en-GB'

const whole = new Intl.NumberFormat(LANGUAGE)
/** 1.2M: British English would have a small m. */
const compact = new Intl.NumberFormat('en-US', { notation: 'compact', maximumFractionDigits: 1 })
const dateTime = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: 'medium', timeStyle: 'short' })
const toTheSecond = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: 'medium', timeStyle: 'medium' })
const dateOnly = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: 'medium' })
const utcDate = new Intl.DateTimeFormat(LANGUAGE, { dateStyle: 'medium', timeZone: 'UTC' })
const relative = new Intl.RelativeTimeFormat(LANGUAGE, { numeric: 'auto' })

/** A whole number, grouped. */
export const count = (value: number): string => whole.format(value)
/** 1.2M for large numbers. */
export const short = (value: number): string => (value < 10_000 ? whole.format(value) : compact.format(value))

/** A share of a limit in whole percent, for a gauge: `< 1%` until one is reached. */
export function percent(value: number, max: number): string {
  const share = max > 0 ? Math.min(100, Math.round((value / max) * 100)) : 0
  return value > 0 && share === 0 ? '< 1%' : `${share}%`
}

/** An amount without its unit, for a column or an axis that names it: two decimals, and up to six where it is small. */
export function amount(decimal: string | number): string {
  const size = Math.abs(Number(decimal))
  const most = size >= 1 || size === 0 ? 2 : size >= 0.0001 ? 4 : 6
  return new Intl.NumberFormat(LANGUAGE, { minimumFractionDigits: 2, maximumFractionDigits: most }).format(Number(decimal))
}

/** What every amount of this page is counted in: a plan grants an allowance, which is no currency. */
export const UNIT = 'credits'
/** An amount with its unit. */
export const money = (decimal: string | number): string => `${amount(decimal)} ${UNIT}`

/** Date and time of an ISO time. */
export const time = (iso: string): string => dateTime.format(new Date(iso))
/** With seconds, for a history. */
export const exact = (iso: string): string => toTheSecond.format(new Date(iso))
/** A day of UTC, such as 2026-11-23: the same day wherever it is read. */
export const utcDay = (date: string): string => utcDate.format(new Date(date))
/** The date of an ISO time. */
export const day = (iso: string): string => dateOnly.format(new Date(iso))

const UNITS = [
  ['day', 86_400_000],
  ['hour', 3_600_000],
  ['minute', 60_000],
] as const

/** "3 hours ago", "in 2 days". */
export function ago(iso: string, now: number): string {
  const ms = Date.parse(iso) - now
  for (const [unit, size] of UNITS) if (Math.abs(ms) >= size) return relative.format(Math.trunc(ms / size), unit)
  return relative.format(0, 'minute').replace(/^this minute$/, 'just now')
}

/** A time span of two units: "2 d 4 h", "4 min 10 s". */
export function span(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000))
  const parts: [number, string][] = [
    [Math.floor(seconds / 86_400), 'd'],
    [Math.floor(seconds / 3600) % 24, 'h'],
    [Math.floor(seconds / 60) % 60, 'min'],
    [seconds % 60, 's'],
  ]
  const first = parts.findIndex(([value]) => value > 0)
  if (first < 0) return '0 s'
  return parts
    .slice(first, first + 2)
    .filter(([value]) => value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(' ')
}

/** A size in bytes, in the unit that keeps it short. */
export function bytes(size: number): string {
  if (size < 1024) return `${size} B`
  return size < 1024 * 1024 ? `${(size / 1024).toFixed(1)} KB` : `${(size / 1024 / 1024).toFixed(1)} MB`
}

/** Operations and fields whose code does not read as English. */
const NAMES: Record<string, string> = {
  ai_edit: 'Edit by prompt',
  background_remove: 'Remove background',
  image_url: 'First frame',
  n: 'How many',
}

/** "not_supported" → "Not supported". */
export function label(code: string): string {
  const text = code.replaceAll('_', ' ')
  return NAMES[code] ?? text.charAt(0).toUpperCase() + text.slice(1)
}
