/** Draws a board as SVG from the results of its queries, in the places that Grafana gives its panels. */
import type { Board, Panel, Unit } from '../charts/dashboard-panels.ts'

/** A series of a panel: its name in the legend and its samples, `[epoch seconds, value]`. */
export type Series = { name: string; samples: [number, number][] }
/** From and to, in epoch seconds. */
export type Range = [from: number, to: number]

const COLUMNS = 3
const [PANEL, GAP, HEADING, TITLE] = [{ width: 400, height: 200 }, 8, 28, 58]
/** Of the drawing in its panel. */
const PLOT = { left: 52, right: 10, top: 30, bottom: 58 }
const COLORS = ['#3b73b9', '#d9822b', '#3a8a4d', '#b8433c', '#7a5aa6', '#2a9aa3', '#a8872a', '#c2589a', '#5c6670', '#8a4b2f']
/** Those with the highest values are drawn. */
const MOST_SERIES = COLORS.length
const LEGEND_WIDTH = PANEL.width - 20
const MORE_WIDTH = 70
const CHARACTER_WIDTH = 5.6

/** Draws a board. `seriesOf` returns the series of a panel, none if it has no data; all time axes have the same range. */
export function boardSvg({ title, description, rows }: Board, range: Range, seriesOf: (panel: Panel) => Series[]): string {
  const parts: string[] = [text(GAP, 26, title, 'font-size="18" font-weight="600"'), text(GAP, 46, description, 'fill="#5c6670"')]
  let y = TITLE
  for (const row of rows) {
    parts.push(text(GAP, y + 19, row.title, 'font-size="14" font-weight="600"'))
    y += HEADING
    row.panels.forEach((panel, nth) => {
      const [x, top] = [GAP + (nth % COLUMNS) * (PANEL.width + GAP), y + Math.floor(nth / COLUMNS) * (PANEL.height + GAP)]
      parts.push(`<g transform="translate(${x} ${top})">${panelSvg(panel, range, seriesOf(panel))}</g>`)
    })
    y += Math.ceil(row.panels.length / COLUMNS) * (PANEL.height + GAP)
  }
  const width = GAP + COLUMNS * (PANEL.width + GAP)
  const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${y}" font-family="system-ui, sans-serif" font-size="11" fill="#24292f">`
  return [head, `<rect width="${width}" height="${y}" fill="#f4f5f7"/>`, ...parts, '</svg>', ''].join('\n')
}

function panelSvg({ title, unit }: Panel, range: Range, all: Series[]): string {
  const drawn = all.toSorted((a, b) => peak(b) - peak(a)).slice(0, MOST_SERIES)
  const frame = `<rect width="${PANEL.width}" height="${PANEL.height}" rx="3" fill="#fff" stroke="#d8dce2"/>${text(10, 19, title, 'font-size="12" font-weight="600"')}`
  if (drawn.length === 0) return frame + text(PANEL.width / 2, PANEL.height / 2, 'No data', 'text-anchor="middle" fill="#5c6670"')
  const [low, high] = bounds(drawn)
  const [width, height] = [PANEL.width - PLOT.left - PLOT.right, PANEL.height - PLOT.top - PLOT.bottom]
  const place = ([at, value]: [number, number]) => `${Math.round(PLOT.left + ((at - range[0]) / (range[1] - range[0])) * width)} ${Math.round(PLOT.top + (1 - (value - low) / (high - low)) * height)}`
  const lines = drawn.map(({ samples }, nth) => `<path d="${pathOf(samples, place)}" fill="none" stroke="${COLORS[nth]}" stroke-width="1.5"/>`)
  return [frame, ...yAxis(low, high, unit, width, height), ...xAxis(range, width, height), ...lines, ...legend(drawn, all.length)].join('')
}

const peak = ({ samples }: Series) => Math.max(...samples.map(([, value]) => value))

/** From 0, or the lowest negative value, to a round number above the highest. */
function bounds(series: Series[]): [number, number] {
  const values = series.flatMap(({ samples }) => samples.map(([, value]) => value))
  const [low, high] = [Math.min(0, ...values), Math.max(...values)]
  if (high <= low) return [low, low + 1]
  const step = 10 ** Math.floor(Math.log10(high - low))
  return [low < 0 ? Math.floor(low / step) * step : 0, Math.max(0, Math.ceil((high * 1.05) / (step / 2)) * (step / 2))]
}

/** A gap where two samples are not neighbors. */
function pathOf(samples: [number, number][], place: (sample: [number, number]) => string): string {
  const step = Math.min(...samples.slice(1).map(([at], nth) => at - (samples[nth]?.[0] ?? 0)))
  const isNext = (nth: number) => nth > 0 && (samples[nth]?.[0] ?? 0) - (samples[nth - 1]?.[0] ?? 0) <= step * 1.5
  return samples.map((sample, nth) => `${isNext(nth) ? 'L' : 'M'}${place(sample)}${isNext(nth) || isNext(nth + 1) ? '' : 'h2'}`).join('')
}

function yAxis(low: number, high: number, unit: Unit, width: number, height: number): string[] {
  return [0, 0.5, 1].flatMap((part) => {
    const y = Math.round(PLOT.top + (1 - part) * height)
    return [`<path d="M${PLOT.left} ${y}h${width}" stroke="#e6e9ed"/>`, text(PLOT.left - 5, y + 4, amount(low + part * (high - low), unit, high), 'text-anchor="end" fill="#5c6670" font-size="10"')]
  })
}

/** The minutes since the start of the range. */
function xAxis([from, to]: Range, width: number, height: number): string[] {
  const minutes = (to - from) / 60
  return [0, 0.5, 1].map((part) => text(Math.round(PLOT.left + part * width), PLOT.top + height + 14, `${Math.round(part * minutes * 10) / 10} min`, `text-anchor="${part === 1 ? 'end' : 'middle'}" fill="#5c6670" font-size="10"`))
}

/** Two lines of names, and the number of the series that they leave out. */
function legend(series: Series[], total: number): string[] {
  const [first, second] = [PANEL.height - 26, PANEL.height - 13]
  const parts: string[] = []
  let [x, y, shown] = [10, first, 0]
  for (const [nth, { name }] of series.entries()) {
    const width = 24 + name.length * CHARACTER_WIDTH
    if (x + width > (y === first ? LEGEND_WIDTH : LEGEND_WIDTH - MORE_WIDTH)) {
      if (y === second) break
      ;[x, y] = [10, second]
    }
    parts.push(`<path d="M${x} ${y - 3}h10" stroke="${COLORS[nth]}" stroke-width="3"/>`, text(x + 14, y, name, 'font-size="10"'))
    x += width
    shown++
  }
  return total > shown ? [...parts, text(x, y, `and ${total - shown} more`, 'font-size="10" fill="#5c6670"')] : parts
}

const SCALES: Record<Unit, [above: number, divisor: number, suffix: string][]> = {
  s: [[60, 60, ' min'], [1, 1, ' s'], [0.001, 0.001, ' ms'], [0, 0.000001, ' µs']],
  bytes: [[2 ** 30, 2 ** 30, ' GiB'], [2 ** 20, 2 ** 20, ' MiB'], [2 ** 10, 2 ** 10, ' KiB'], [0, 1, ' B']],
  percentunit: [[0, 0.01, ' %']],
  reqps: [[1000, 1000, 'k/s'], [0, 1, '/s']],
  ops: [[1000, 1000, 'k/s'], [0, 1, '/s']],
  short: [[1e6, 1e6, 'M'], [1000, 1000, 'k'], [0, 1, '']],
}

/** In the unit that suits the highest value of its axis. */
function amount(value: number, unit: Unit, highest: number): string {
  if (value === 0) return '0'
  const [, divisor, suffix] = SCALES[unit].find(([above]) => Math.abs(highest) >= above) ?? [0, 1, '']
  return `${Number((value / divisor).toPrecision(3))}${suffix}`
}

function text(x: number, y: number, content: string, attributes = ''): string {
  return `<text x="${x}" y="${y}" ${attributes}>${content.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')}</text>`
}
