/** Stacked bars by day, drawn by uPlot. The table beside it has the same numbers for those who do not see it. */
import { useEffect, useRef, useState } from 'preact/hooks'
import uPlot from 'uplot'
import 'uplot/dist/uPlot.min.css'
import { day as dayOf, LANGUAGE } from '../format.ts'
import { theme } from '../theme.ts'
import { fillOf, resolve, tileOf } from './chart-looks.ts'

/** `look`: which colour and pattern it has. */
export type Series = { name: string; look: number; values: number[] }
/** `unit` follows the numbers of the legend. */
type Props = { label: string; days: string[]; series: Series[]; format: (value: number) => string; unit?: string }

const HEIGHT = 240

/** Each series on top of those before it. */
function stacked(series: Series[]): number[][] {
  const sums: number[] = []
  return series.map(({ values }) => values.map((value, at) => (sums[at] = (sums[at] ?? 0) + value)))
}

function optionsOf(host: HTMLElement, { series, format }: Props, seen: (at: number | null) => void): uPlot.Options {
  const fills = series.map(({ look }) => fillOf(host, look))
  const muted = resolve(host, '--muted')
  const line = resolve(host, '--line')
  const font = `12px ${getComputedStyle(host).fontFamily}`
  const bars = uPlot.paths.bars?.({ size: [0.68, 46], radius: 0.12 })
  return {
    width: host.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { y: false, points: { show: false }, drag: { x: false, y: false } },
    scales: {
      x: { time: true, range: (_plot, from, to) => [from - 43_200, to + 43_200] },
      y: { range: (_plot, _from, to) => [0, to > 0 ? to * 1.08 : 1] },
    },
    axes: [
      {
        stroke: muted,
        font,
        grid: { show: false },
        ticks: { show: false },
        values: (_plot, at) =>
          at.map((seconds) => new Date(seconds * 1000).toLocaleDateString(LANGUAGE, { day: 'numeric', month: 'short', timeZone: 'UTC' })),
        space: 70,
      },
      { stroke: muted, font, size: 62, grid: { stroke: line, width: 1 }, ticks: { show: false }, values: (_plot, at) => at.map(format) },
    ],
    series: [
      {},
      ...fills.map((fill) => ({ fill: () => fill, width: 0, points: { show: false }, ...(bars ? { paths: bars } : {}) })).toReversed(),
    ],
    hooks: { setCursor: [({ cursor }) => seen(cursor.idx ?? null)] },
  }
}

export function Chart(props: Props) {
  const { label, days, series, format, unit = '' } = props
  const host = useRef<HTMLDivElement>(null)
  const [at, setAt] = useState<number | null>(null)
  const [scheme, setScheme] = useState(0)
  useEffect(() => {
    const query = matchMedia('(prefers-color-scheme: dark)')
    const changed = () => setScheme((last) => last + 1)
    query.addEventListener('change', changed)
    return () => query.removeEventListener('change', changed)
  }, [])
  useEffect(() => {
    const element = host.current
    if (!element) return undefined
    const times = days.map((date) => Date.parse(date) / 1000)
    // The highest stack is drawn first, and those below over it.
    const plot = new uPlot(optionsOf(element, props, setAt), [times, ...stacked(series).toReversed()], element)
    const sizes = new ResizeObserver(() => plot.setSize({ width: element.clientWidth, height: HEIGHT }))
    sizes.observe(element)
    return () => {
      sizes.disconnect()
      plot.destroy()
    }
  }, [JSON.stringify([days, series]), theme.value, scheme])
  return (
    <figure class="chart">
      <div ref={host} role="img" aria-label={label} class="chart-canvas" />
      <figcaption>
        <span class="chart-day">{at === null ? 'Sum' : dayOf(`${days[at] ?? ''}T12:00:00Z`)}</span>
        {series.map(({ name, look, values }) => (
          <span key={name} class="legend">
            <Swatch look={look} scheme={`${theme.value} ${scheme}`} />
            {name} <strong>{format(at === null ? values.reduce((sum, value) => sum + value, 0) : (values[at] ?? 0))}</strong>
            {unit && ` ${unit}`}
          </span>
        ))}
      </figcaption>
    </figure>
  )
}

/** The look of a series beside its name. `scheme` changes with the theme. */
function Swatch({ look, scheme }: { look: number; scheme: string }) {
  const element = useRef<HTMLElement>(null)
  useEffect(() => {
    const { current: host } = element
    if (host) host.style.backgroundImage = `url(${tileOf(host, look).toDataURL()})`
  }, [look, scheme])
  return <i ref={element} />
}
