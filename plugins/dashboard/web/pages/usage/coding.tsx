/** Coding usage: both token windows, tokens, requests and refusals by day, and which key used them. */
import { useState } from 'preact/hooks'
import { isMedia, type Plan } from '../../api/plans.ts'
import { codingUsage, everyDay, type CodingDay, type CodingUsage as Usage } from '../../api/usage.ts'
import { serverTime } from '../../clock.ts'
import { Card, Fact } from '../../components/card.tsx'
import { Chart, type Series } from '../../components/chart.tsx'
import { Segmented } from '../../components/field.tsx'
import { Gauge, Meter } from '../../components/gauge.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Empty, Notice } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { Countdown } from '../../components/time.tsx'
import { count, percent, short, time, utcDay } from '../../format.ts'
import { reasonsOf, Refusals } from './refusals.tsx'
import { Requests } from './requests.tsx'
import { UsagePage } from './usage-page.tsx'

const USAGE_MS = 3000
/** In days; a plan's record keeps the newest 35. */
const RANGES = [7, 14, 35] as const
const LOCKED = {
  title: 'No plan for coding',
  icon: 'lock' as const,
  text: 'A Coding plan opens an OpenAI-compatible endpoint under token windows. Its usage appears here.',
}

export function CodingUsage() {
  return (
    <UsagePage
      api="coding"
      title="Coding usage"
      lead="Two windows limit a Coding plan. A session begins with its first request and ends by itself; the week limits what all sessions use."
      of={(plan) => !isMedia(plan)}
      locked={LOCKED}
      ranges={RANGES}
    >
      {(plan, since) => <Loaded key={plan.name} plan={plan} since={since} />}
    </UsagePage>
  )
}

function Loaded({ plan, since }: { plan: Plan; since: string }) {
  const load = useLoad((abort) => codingUsage(plan.name, since, abort), [plan.name, since], USAGE_MS)
  return (
    <Async of={load} lines={7}>
      {(usage) => (
        <>
          {usage.overshoot > 0 && <Notice tone="warn">This week's use is {count(usage.overshoot)} tokens above its present limit.</Notice>}
          <div class="grid">
            <Window name="Session" {...usage.session} />
            <Window name="Week" {...usage.weekly} />
          </div>
          <Days days={usage.days} since={since} />
          <Refusals days={usage.days} />
          <Keys {...usage} />
          <Requests plan={plan.name} keys={usage.keys.flatMap(({ name }) => name ?? [])} />
        </>
      )}
    </Async>
  )
}

function Window({ name, limit, used, reserved, remaining, resets_at: resetsAt }: Usage['session'] & { name: string }) {
  const hasBegun = resetsAt !== null && used + reserved > 0
  return (
    <Card
      title={name}
      hint={
        hasBegun ? (
          <>
            Resets in <Countdown to={resetsAt} /> · {time(resetsAt)}
          </>
        ) : (
          'Begins with the next request'
        )
      }
    >
      <div class="gauge-row">
        <Gauge label={`${name}: tokens used`} value={used} more={reserved} max={limit} centre={percent(used, limit)} below="used" />
        <dl class="facts">
          <Fact name="Remaining" isBig>
            {count(remaining)}
          </Fact>
          <Fact name="Used">{count(used)}</Fact>
          <Fact name="Reserved">{count(reserved)}</Fact>
          <Fact name="Limit">{count(limit)}</Fact>
        </dl>
      </div>
    </Card>
  )
}

function seriesOf(days: CodingDay[], view: string): Series[] {
  const series = (name: string, look: number, field: keyof Omit<CodingDay, 'date' | 'refused'>): Series => ({
    name,
    look,
    values: days.map((each) => each[field]),
  })
  if (view === 'requests') return [series('Requests', 0, 'requests'), series('Refusals', 2, 'refusals')]
  // Cached input is a part of the input, and the chart stacks its series.
  const uncached = days.map((each) => each.input - each.cached_input)
  return [{ ...series('Input', 0, 'input'), values: uncached }, series('Cached input', 1, 'cached_input'), series('Output', 3, 'output')]
}

const VIEWS = [
  { value: 'tokens', name: 'Tokens' },
  { value: 'requests', name: 'Requests' },
]

function Days({ days: used, since }: { days: CodingDay[]; since: string }) {
  const days = everyDay(
    used,
    (date) => ({ date, requests: 0, input: 0, cached_input: 0, output: 0, charged: 0, refusals: 0, refused: {} }),
    since,
    serverTime(),
  )
  const [view, setView] = useState('tokens')
  if (used.length === 0) {
    return (
      <Card title="By day">
        <Empty icon="chart" title="No requests yet">
          The first answered request appears here.
        </Empty>
      </Card>
    )
  }
  return (
    <Card
      title="By day"
      hint="Days are in UTC. The windows count charged tokens, and the plan may charge less for cached input: the table has both."
      actions={<Segmented label="What the chart shows" value={view} choices={VIEWS} choose={setView} />}
    >
      <Chart
        label={`${view === 'tokens' ? 'Tokens by day: input, cached input and output' : 'Requests by day'}. The same numbers are in the table below.`}
        days={days.map(({ date }) => date)}
        series={seriesOf(days, view)}
        format={short}
      />
      <details>
        <summary>Show as a table</summary>
        <DataTable
          caption="Requests, tokens and refusals by day"
          rows={used.toReversed()}
          keyOf={({ date }) => date}
          columns={[
            { name: 'Day', cell: ({ date }) => utcDay(date) },
            { name: 'Requests', number: true, cell: ({ requests }) => count(requests) },
            { name: 'Input', number: true, cell: ({ input }) => count(input) },
            { name: 'Of it cached', number: true, cell: ({ cached_input: cached }) => count(cached) },
            { name: 'Output', number: true, cell: ({ output }) => count(output) },
            { name: 'Charged', number: true, cell: ({ charged }) => count(charged) },
            { name: 'Refusals', number: true, cell: (each) => <span title={reasonsOf(each)}>{count(each.refusals)}</span> },
          ]}
        />
      </details>
    </Card>
  )
}

function Keys({ keys, weekly }: Usage) {
  if (keys.length === 0) return null
  return (
    <Card title="By key" hint="Tokens charged this week.">
      <ul class="shares">
        {keys.map(({ name, used, refusals }) => (
          <li key={name ?? ''}>
            <span class="break">
              {name ?? 'Removed keys'}
              {refusals > 0 && <span class="muted"> · {count(refusals)} refused</span>}
            </span>
            <strong>{count(used)}</strong>
            <Meter
              label={`Share of ${name ?? 'removed keys'}`}
              max={Math.max(1, weekly.used)}
              parts={[{ name: 'used', value: used }]}
              tone="coding"
            />
          </li>
        ))}
      </ul>
    </Card>
  )
}
