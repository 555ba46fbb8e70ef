/** A page of one product's usage: its plan, the CSV of the same numbers, and below them what `children` shows of the plan. */
import type { ComponentChildren } from 'preact'
import { downloadUrl } from '../../api/client.ts'
import type { Plan } from '../../api/plans.ts'
import { firstOf } from '../../api/usage.ts'
import { serverTime } from '../../clock.ts'
import { PageHead } from '../../components/card.tsx'
import { Segmented } from '../../components/field.tsx'
import { Icon } from '../../components/icon.tsx'
import { PlanPage, type PlanPageProps } from '../../components/plan-choice.tsx'
import { go, here } from '../../router.ts'

type Props = Pick<PlanPageProps, 'of' | 'locked'> & {
  api: 'media' | 'coding'
  title: string
  lead: string
  /** Ranges to choose from, in days. */
  ranges: readonly number[]
  children: (plan: Plan, since: string) => ComponentChildren
}

export function UsagePage({ api, title, lead, of, locked, ranges, children }: Props) {
  const asked = Number(here.value.query.get('days'))
  const days = ranges.includes(asked) ? asked : (ranges[1] ?? 1)
  const since = firstOf(days, serverTime())
  function choose(value: string): void {
    const search = new URLSearchParams(here.value.query)
    search.set('days', value)
    go(`${here.value.path}?${search}`, { replace: true })
  }
  return (
    <>
      <PageHead title={title} lead={lead} />
      <PlanPage of={of} locked={locked}>
        {(plan, choice) => (
          <>
            <div class="filters">
              {choice}
              <Segmented
                label="Days shown"
                value={String(days)}
                choices={ranges.map((each) => ({ value: String(each), name: `${each} days` }))}
                choose={choose}
              />
              <a
                class="button"
                href={downloadUrl(`/usage/${api}`, { plan: plan.name, format: 'csv', since })}
                download={`${plan.name}-${api}-usage.csv`}
              >
                <Icon name="download" size={18} /> CSV
              </a>
            </div>
            {children(plan, since)}
          </>
        )}
      </PlanPage>
    </>
  )
}
