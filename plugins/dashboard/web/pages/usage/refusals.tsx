/** Requests that the plan refused: why, how often, and on which day last. */
import type { CodingDay } from '../../api/usage.ts'
import { Card } from '../../components/card.tsx'
import { DataTable } from '../../components/table.tsx'
import { count, day, label } from '../../format.ts'

type Reason = { name: string; text: string }

/** By the code of the answer (docs/errors.md). */
const REASONS: Record<string, Reason> = {
  plan_inactive: { name: 'Plan not active', text: 'The plan was suspended, had ended or had not begun.' },
  rate_limited: { name: 'Too many requests a minute', text: 'The plan limits how many requests may begin in a minute.' },
  session_limit_reached: { name: 'Session used up', text: 'The session window had no tokens left.' },
  weekly_limit_reached: { name: 'Week used up', text: 'The weekly window had no tokens left.' },
  key_limit_reached: { name: 'Limit of the key used up', text: 'The share of the key in the weekly window had no tokens left.' },
  concurrency_limit: { name: 'Too many requests at once', text: 'The plan limits how many requests may run at the same time.' },
  window_reserved: { name: 'Tokens reserved', text: 'Running requests had reserved the rest of a window.' },
}

const reasonOf = (code: string): Reason => REASONS[code] ?? { name: label(code), text: '' }

/** The reasons of one day, the most frequent first: "Session used up 12, Tokens reserved 1". */
export function reasonsOf({ refused }: Pick<CodingDay, 'refused'>): string {
  return Object.entries(refused)
    .toSorted(([, one], [, other]) => other - one)
    .map(([code, times]) => `${reasonOf(code).name} ${count(times)}`)
    .join(', ')
}

export function Refusals({ days }: { days: CodingDay[] }) {
  const rows = new Map<string, { code: string; times: number; last: string }>()
  for (const { date, refused } of days) {
    for (const [code, times] of Object.entries(refused)) rows.set(code, { code, times: (rows.get(code)?.times ?? 0) + times, last: date })
  }
  if (rows.size === 0) return null
  return (
    <Card title="Refused requests" hint="Requests with a valid key that the plan refused in the days shown. They used no tokens.">
      <DataTable
        caption="Refused requests by reason"
        rows={[...rows.values()].toSorted((one, other) => other.times - one.times)}
        keyOf={({ code }) => code}
        columns={[
          { name: 'Reason', cell: ({ code }) => <Why {...reasonOf(code)} /> },
          { name: 'Code', cell: ({ code }) => <code class="break">{code}</code> },
          { name: 'Requests', number: true, cell: ({ times }) => count(times) },
          { name: 'Last', number: true, cell: ({ last }) => day(`${last}T12:00:00Z`) },
        ]}
      />
    </Card>
  )
}

function Why({ name, text }: Reason) {
  return (
    <span class="stacked">
      <strong>{name}</strong>
      <span class="muted">{text}</span>
    </span>
  )
}
