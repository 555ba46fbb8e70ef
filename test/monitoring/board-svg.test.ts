/** The pictures of the boards, as docs/board-svg.ts draws them. */
import t from 'tap'
import type { Board, Panel } from '../../charts/dashboard-panels.ts'
import { boardSvg, type Series } from '../../docs/board-svg.ts'

const panel = (title: string, unit: Panel['unit']): Panel => ({ title, unit, description: '', queries: [] })
const draw = (panels: Panel[], seriesOf: (panel: Panel) => Series[]) => boardSvg({ uid: 'u', title: 'Board', description: 'All <of> it', rows: [{ title: 'Row', panels }] } satisfies Board, [0, 60], seriesOf)
const flat = (name: string, value: number): Series => ({ name, samples: [[0, value], [30, value], [60, value]] })
const count = (text: string, part: string) => text.split(part).length - 1

t.test('a panel has its title, and a line and a name in the legend for each series; a panel without series says so', async (t) => {
  const svg = draw([panel('Full', 's'), panel('Empty', 's')], ({ title }) => (title === 'Full' ? [flat('p50 & less', 0.002), flat('p99', 0.004)] : []))
  for (const shown of ['Board', 'All &lt;of&gt; it', 'Row', 'Full', 'Empty', 'p50 &amp; less', 'p99', '4.5 ms', '1 min']) t.equal(count(svg, `>${shown}</text>`), 1, shown)
  t.equal(count(svg, 'No data'), 1)
  t.equal(count(svg, 'stroke-width="1.5"'), 2)
})

t.test('the legend counts the series that it does not name', async (t) => {
  const all = Array.from({ length: 30 }, (_, nth) => flat(`a series of some length ${nth}`, nth))
  const svg = draw([panel('Many', 'short')], () => all)
  const named = count(svg, '>a series of')
  t.ok(named > 0 && named < 10, `${named}`)
  t.equal(count(svg, `>and ${30 - named} more</text>`), 1)
})

t.test('a gap in the samples is a gap in the line', async (t) => {
  const pathOf = (samples: Series['samples']) => / d="(M[^"]*)" fill="none"/.exec(draw([panel('One', 'short')], () => [{ name: 'one', samples }]))?.[1] ?? ''
  t.equal(count(pathOf([[0, 1], [10, 1], [20, 1], [30, 1]]), 'M'), 1)
  t.equal(count(pathOf([[0, 1], [10, 1], [40, 1], [50, 1]]), 'M'), 2)
})
