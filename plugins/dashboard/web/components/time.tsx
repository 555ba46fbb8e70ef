import { now } from '../clock.ts'
import { ago, span, time } from '../format.ts'

/** "in 4 h 59 min", and the date as a title. */
export function Countdown({ to, over = 'now' }: { to: string; over?: string }) {
  const left = Date.parse(to) - now.value
  return <time dateTime={to}>{left <= 0 ? over : span(left)}</time>
}

/** "3 minutes ago", with the exact time at hand. */
export function Ago({ at }: { at: string }) {
  return (
    <time dateTime={at} title={time(at)}>
      {ago(at, now.value)}
    </time>
  )
}
