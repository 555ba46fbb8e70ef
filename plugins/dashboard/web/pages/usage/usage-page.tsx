/** A page of one product's usage: its plan, the CSV of the same numbers, and below them what `children` shows of the plan. */
import type { ComponentChildren } from 'preact'
import { apiUrl } from '../../api/client.ts'
import type { Plan } from '../../api/plans.ts'
import { PageHead } from '../../components/card.tsx'
import { Icon } from '../../components/icon.tsx'
import { PlanPage, type PlanPageProps } from '../../components/plan-choice.tsx'

type Props = Pick<PlanPageProps, 'of' | 'locked'> & {
  api: 'media' | 'coding'
  title: string
  lead: string
  children: (plan: Plan) => ComponentChildren
}

export function UsagePage({ api, title, lead, of, locked, children }: Props) {
  return (
    <>
      <PageHead title={title} lead={lead} />
      <PlanPage of={of} locked={locked}>
        {(plan, choice) => (
          <>
            <div class="filters">
              {choice}
              <a
                class="button"
                href={apiUrl(`/usage/${api}`, { plan: plan.name, format: 'csv' })}
                download={`${plan.name}-${api}-usage.csv`}
              >
                <Icon name="download" size={18} /> CSV
              </a>
            </div>
            {children(plan)}
          </>
        )}
      </PlanPage>
    </>
  )
}
