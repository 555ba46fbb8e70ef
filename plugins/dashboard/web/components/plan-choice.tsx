/** Which of several plans a page is about; and what a page shows when no plan unlocks it. */
import type { ComponentChildren } from 'preact'
import { isActive, isMedia, loadPlans, plans, plansError, type Plan } from '../api/plans.ts'
import { go, here, hrefOf } from '../router.ts'
import { SelectField } from './field.tsx'
import type { IconName } from './icon.tsx'
import { Empty, Failed, Loading, Notice } from './states.tsx'

export type PlanPageProps = {
  of: (plan: Plan) => boolean
  locked: { title: string; text: string; icon: IconName }
  choiceLabel?: string
  children: (plan: Plan, choice: ComponentChildren) => ComponentChildren
}

/** Shows `children` for the plan of the address (`?plan=`), else the first active one. A plan that is not active says why. */
export function PlanPage({ of, locked, choiceLabel = 'Plan', children }: PlanPageProps) {
  if (plans.value === null) return plansError.value ? <Failed error={plansError.value} retry={loadPlans} /> : <Loading lines={5} />
  const fitting = plans.value.filter(of)
  const asked = here.value.query.get('plan')
  const plan = fitting.find(({ name }) => name === asked) ?? fitting.find(isActive) ?? fitting[0]
  if (!plan) return <Locked {...locked} />
  const choice = fitting.length > 1 && (
    <SelectField
      label={choiceLabel}
      value={plan.name}
      choices={fitting.map(({ name, display_name }) => ({ value: name, name: display_name }))}
      choose={(name) => go(`${here.value.path}?plan=${encodeURIComponent(name)}`, { replace: true })}
    />
  )
  if (isActive(plan)) return <>{children(plan, choice)}</>
  return (
    <>
      {choice && <div class="filters">{choice}</div>}
      <Notice tone="warn" icon="lock" title={`${plan.display_name} is locked`}>
        {plan.message ?? 'This plan is not active.'}{' '}
        {isMedia(plan) && (
          <>
            What it made is still in <a href={hrefOf('/tasks')}>Tasks</a>.
          </>
        )}
      </Notice>
    </>
  )
}

/** No plan unlocks what the page is for. */
export function Locked({ title, text, icon }: PlanPageProps['locked']) {
  return (
    <div class="card">
      <Empty
        icon={icon}
        title={title}
        action={
          <a class="button" href={hrefOf('/')}>
            See your plans
          </a>
        }
      >
        {text}
      </Empty>
    </div>
  )
}
