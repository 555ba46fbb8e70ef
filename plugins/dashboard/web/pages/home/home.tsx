/** The tenant's plans, what they unlock, what is locked and why, and what to do first. */
import { isActive, loadPlans, plans, plansError } from '../../api/plans.ts'
import { session } from '../../api/session.ts'
import { PageHead } from '../../components/card.tsx'
import { Empty, Failed, Loading } from '../../components/states.tsx'
import { FirstSteps } from './first-steps.tsx'
import { PlanCard } from './plan-card.tsx'

export function Home() {
  return (
    <>
      <PageHead title="Home" lead={`The plans of ${session.value?.tenant ?? 'your tenant'}: what they unlock, and how much is left.`} />
      <Plans />
    </>
  )
}

function Plans() {
  if (plans.value === null) return plansError.value ? <Failed error={plansError.value} retry={loadPlans} /> : <Loading lines={6} />
  if (plans.value.length === 0) {
    return (
      <div class="card">
        <Empty icon="lock" title="There is no plan yet">
          A plan unlocks an API: Media or Room for images, video and music, Coding for an OpenAI-compatible endpoint. Your provider adds it,
          and it appears here by itself.
        </Empty>
      </div>
    )
  }
  return (
    <>
      <FirstSteps plans={plans.value} />
      <section class="stack" aria-labelledby="plans">
        <h2 id="plans">Plans</h2>
        <div class="grid">
          {plans.value
            .toSorted((a, b) => Number(isActive(b)) - Number(isActive(a)))
            .map((plan) => (
              <PlanCard key={plan.name} {...plan} />
            ))}
        </div>
      </section>
    </>
  )
}
