/** Media usage: the allowance of the period, what was made by day and kind, and which key paid. */
import { useState } from 'preact/hooks'
import { isMedia, plans, type Plan } from '../../api/plans.ts'
import { KINDS, OPERATIONS, type Filter } from '../../api/tasks.ts'
import { everyDay, mediaUsage, type MediaUsage as Usage } from '../../api/usage.ts'
import { serverTime } from '../../clock.ts'
import { AllowanceFacts } from '../../components/allowance.tsx'
import { Card, Fact } from '../../components/card.tsx'
import { Chart } from '../../components/chart.tsx'
import { Gauge, Meter } from '../../components/gauge.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Empty } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { Countdown } from '../../components/time.tsx'
import { amount, count, day, label, money, percent, time, UNIT, utcDay } from '../../format.ts'
import { TaskBrowser } from '../tasks/task-browser.tsx'
import { UsagePage } from './usage-page.tsx'

const USAGE_MS = 5000
/** Each kind has one look, whatever else is shown. */
const ALL: readonly string[] = [...KINDS, ...OPERATIONS]
/** In days; the store keeps all periods. */
const RANGES = [7, 30, 90] as const
const LOCKED = {
  title: 'No plan for media',
  icon: 'lock' as const,
  text: 'A Media or Room plan pays for images, video, music and operations. Its usage appears here.',
}

export function MediaUsage() {
  return (
    <UsagePage
      api="media"
      title="Media usage"
      lead="What the period's allowance has paid for. A task holds its price when it is accepted, and pays what it cost when it ends."
      of={isMedia}
      locked={LOCKED}
      ranges={RANGES}
    >
      {(plan, since) => <Loaded key={plan.name} plan={plan} since={since} />}
    </UsagePage>
  )
}

function Loaded({ plan, since }: { plan: Plan; since: string }) {
  const load = useLoad((abort) => mediaUsage(plan.name, since, abort), [plan.name, since], USAGE_MS)
  return (
    <Async of={load} lines={7}>
      {(usage) => (
        <>
          <Allowance usage={usage} plan={plan} />
          <Days {...usage} since={since} />
          <div class="grid">
            <Keys {...usage} />
            <Periods {...usage} />
          </div>
          <Tasks since={usage.period?.start ?? null} />
        </>
      )}
    </Async>
  )
}

function Allowance({ usage: { allowance, burned, held, remaining, period }, plan }: { usage: Usage; plan: Plan }) {
  return (
    <Card title="This period" hint={period && `${day(period.start)} to ${day(period.end)}`}>
      <div class="gauge-row">
        <Gauge
          label="Spent of the allowance"
          value={Number(burned)}
          more={Number(held)}
          max={Number(allowance)}
          centre={percent(Number(burned) + Number(held), Number(allowance))}
          below="spent or held"
          tone={plan.product === 'Room' ? 'room' : 'media'}
        />
        <AllowanceFacts of={{ remaining, burned, held, allowance }}>
          {period && (
            <Fact name="Renews">
              in <Countdown to={period.end} />
              <small class="muted">{time(period.end)}</small>
            </Fact>
          )}
        </AllowanceFacts>
      </div>
    </Card>
  )
}

function Days({ days: used, since }: Usage & { since: string }) {
  const days = everyDay<Usage['days'][number]>(used, (date) => ({ date, by: {} }), since, serverTime())
  const kinds = [...new Set(days.flatMap(({ by }) => Object.keys(by)))].sort()
  const rows = days.flatMap(({ date, by }) => Object.entries(by).map(([kind, used]) => ({ date, kind, ...used }))).toReversed()
  if (rows.length === 0) {
    return (
      <Card title="By day and kind">
        <Empty icon="chart" title="Nothing made yet">
          The first task that ends appears here.
        </Empty>
      </Card>
    )
  }
  return (
    <Card title="By day and kind" hint="Spent, by the day on which the task ended (UTC).">
      <Chart
        label="Amount spent by day and kind. The same numbers are in the table below."
        days={days.map(({ date }) => date)}
        series={kinds.map((kind) => ({
          name: label(kind),
          look: ALL.indexOf(kind) < 0 ? ALL.length : ALL.indexOf(kind),
          values: days.map(({ by }) => Number(by[kind]?.burned ?? 0)),
        }))}
        format={amount}
        unit={UNIT}
      />
      <details>
        <summary>Show as a table</summary>
        <DataTable
          caption="Amount spent and tasks by day and kind"
          rows={rows}
          keyOf={({ date, kind }) => `${date} ${kind}`}
          columns={[
            { name: 'Day', cell: ({ date }) => utcDay(date) },
            { name: 'Kind', cell: ({ kind }) => label(kind) },
            { name: 'Tasks', number: true, cell: (row) => count(row.count) },
            { name: 'Spent', number: true, cell: ({ burned }) => money(burned) },
          ]}
        />
      </details>
    </Card>
  )
}

function Keys({ keys, burned }: Usage) {
  return (
    <Card title="By key" hint="Who spent it in this period.">
      {keys.length === 0 ? (
        <p class="muted">No key has spent anything.</p>
      ) : (
        <ul class="shares">
          {keys.map((key) => (
            <li key={key.name ?? ''}>
              <span class="break">{key.name ?? 'Removed keys'}</span>
              <strong>{money(key.burned)}</strong>
              <Meter
                label={`Share of ${key.name ?? 'removed keys'}`}
                max={Number(burned)}
                parts={[{ name: 'spent', value: Number(key.burned) }]}
              />
            </li>
          ))}
        </ul>
      )}
    </Card>
  )
}

/** The tasks of this period, with what each cost. */
function Tasks({ since }: { since: string | null }) {
  const [filter, setFilter] = useState<Filter>(since === null ? {} : { created_after: since.slice(0, 10) })
  return (
    <section class="stack" aria-labelledby="by-task">
      <h2 id="by-task">By task</h2>
      {(plans.value ?? []).filter(isMedia).length > 1 && (
        <p class="muted">The tasks of all your plans: a task does not record which plan paid.</p>
      )}
      <TaskBrowser filter={filter} show={setFilter} />
    </section>
  )
}

function Periods({ periods }: Usage) {
  return (
    <Card title="Earlier periods">
      {periods.length === 0 ? (
        <p class="muted">This is the first period.</p>
      ) : (
        <DataTable
          caption="Earlier periods"
          rows={periods}
          keyOf={({ start }) => start}
          columns={[
            { name: 'Period', cell: ({ start, end }) => `${day(start)} – ${day(end)}` },
            { name: 'Spent', number: true, cell: ({ burned }) => money(burned) },
            { name: 'Allowance', number: true, cell: ({ allowance }) => money(allowance) },
          ]}
        />
      )}
    </Card>
  )
}
