/** Stacked bars by day. The table beside it has the same numbers for those who do not see it. */
import { useState } from 'preact/hooks'
import { LANGUAGE, utcDay } from '../format.ts'
import './chart.css'

/** `look`: which colour and pattern it has; each of the ten is told from the others without its colour as well. */
export type Series = { name: string; look: number; values: number[] }
/** `unit` follows the numbers of the legend. */
type Props = { label: string; days: string[]; series: Series[]; format: (value: number) => string; unit?: string }

const LOOKS = 10
const DATES_MAX = 7
const TICKS_MAX = 4
const dates = new Intl.DateTimeFormat(LANGUAGE, { day: 'numeric', month: 'short', timeZone: 'UTC' })

/** The lines of the axis from 0 on; the last one is not below the highest bar. Whole numbers have whole steps. */
function ticksOf(highest: number, isWhole: boolean): number[] {
  const size = 10 ** Math.floor(Math.log10(highest / TICKS_MAX || 1))
  const steps = [1, 2, 5, 10].map((factor) => factor * size)
  const step = Math.max(isWhole ? 1 : 0, steps.find((each) => each * TICKS_MAX >= highest) ?? size)
  return Array.from({ length: Math.max(1, Math.ceil(highest / step)) + 1 }, (_none, at) => at * step)
}

export function Chart({ label, days, series, format, unit = '' }: Props) {
  const [at, setAt] = useState<number | null>(null)
  const sums = days.map((_day, index) => series.reduce((sum, { values }) => sum + (values[index] ?? 0), 0))
  const ticks = ticksOf(
    Math.max(...sums),
    series.every(({ values }) => values.every(Number.isInteger)),
  )
  const share = (value: number) => `${(value / (ticks.at(-1) ?? 1)) * 100}%`
  const everyDays = Math.ceil(days.length / DATES_MAX)
  return (
    <figure class="chart">
      <div role="img" aria-label={label} class="chart-plot" onPointerLeave={() => setAt(null)}>
        {ticks.map((tick) => (
          <span key={tick} class="chart-tick" style={{ bottom: share(tick) }}>
            <span>{format(tick)}</span>
          </span>
        ))}
        <div class="chart-days">
          {days.map((date, index) => (
            <div key={date} class={index === at ? 'chart-day current' : 'chart-day'} onPointerEnter={() => setAt(index)}>
              <div class="chart-stack" style={{ height: share(sums[index] ?? 0) }}>
                {series.map(({ name, look, values }) => {
                  const part = (values[index] ?? 0) / (sums[index] || 1)
                  return part > 0 && <i key={name} class={`look-${look % LOOKS}`} style={{ height: `${part * 100}%` }} />
                })}
              </div>
              {(days.length - 1 - index) % everyDays === 0 && (
                <span class={(days.length - 1 - index) % (2 * everyDays) === 0 ? 'chart-date' : 'chart-date second'}>
                  {dates.format(new Date(date))}
                </span>
              )}
            </div>
          ))}
        </div>
      </div>
      <figcaption>
        <span class="chart-shown">{at === null ? 'Sum' : utcDay(days[at] ?? '')}</span>
        {series.map(({ name, look, values }) => (
          <span key={name} class="legend">
            <i class={`look-${look % LOOKS}`} />
            {name} <strong>{format(at === null ? values.reduce((sum, value) => sum + value, 0) : (values[at] ?? 0))}</strong>
            {unit && ` ${unit}`}
          </span>
        ))}
      </figcaption>
    </figure>
  )
}
