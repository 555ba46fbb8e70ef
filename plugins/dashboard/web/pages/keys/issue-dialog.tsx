import { useState } from 'preact/hooks'
import { issueKey, type Key, type NewKey } from '../../api/keys.ts'
import { isMedia, type Plan } from '../../api/plans.ts'
import { serverTime } from '../../clock.ts'
import { FormDialog } from '../../components/dialog.tsx'
import { DateField, NameField, SelectField } from '../../components/field.tsx'
import { hrefOf } from '../../router.ts'
import { LimitField, limitFaults, limitOf } from './limit-field.tsx'

/** A name of a Kubernetes resource that is also a label. */
const NAME = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/

type Draft = { name: string; plan: string; limit: string; expires: string }

/** Finds the faults that the server would find, so that a form is not sent in vain. */
function faultsOf({ name, limit, expires }: Draft, plan: Plan | undefined): { name?: string; limit?: string; expires?: string } {
  const isAmount = plan !== undefined && isMedia(plan)
  return {
    ...(NAME.test(name) ? {} : { name: 'Use 1 to 63 lower-case letters, digits and hyphens; begin and end with a letter or digit.' }),
    ...limitFaults(limit, isAmount),
    ...(expires === '' || Date.parse(`${expires}T00:00:00`) > serverTime() ? {} : { expires: 'Use a day in the future.' }),
  }
}

function newKey({ name, plan, limit, expires }: Draft, isAmount: boolean): NewKey {
  return {
    name,
    plan,
    ...(limit === '' ? {} : { limit: limitOf(limit, isAmount) }),
    ...(expires === '' ? {} : { expires_at: new Date(`${expires}T00:00:00`).toISOString() }),
  }
}

export function IssueDialog({ plans, close, issued }: { plans: Plan[]; close: () => void; issued: (key: Key) => void }) {
  const [draft, setDraft] = useState<Draft>({ name: '', plan: plans[0]?.name ?? '', limit: '', expires: '' })
  const [wasSent, setSent] = useState(false)
  const plan = plans.find(({ name }) => name === draft.plan)
  const isAmount = plan !== undefined && isMedia(plan)
  const faults = wasSent ? faultsOf(draft, plan) : {}
  const set = (change: Partial<Draft>) => setDraft({ ...draft, ...change })
  async function submit(): Promise<void> {
    setSent(true)
    if (Object.keys(faultsOf(draft, plan)).length > 0) return
    issued(await issueKey(newKey(draft, isAmount)))
  }
  return (
    <FormDialog title="Issue a key" action="Issue" close={close} submit={submit}>
      <NameField
        label="Name"
        hint="For you: the program or person that uses the key, such as ci-robot."
        error={faults.name}
        value={draft.name}
        maxLength={63}
        change={(name) => set({ name })}
      />
      <SelectField
        label="Plan"
        hint={plan && `${isAmount ? 'Opens the Media API.' : 'Opens the Coding Plan API.'} At most ${plan.key_policy.max_keys} keys.`}
        value={draft.plan}
        choices={plans.map(({ name, display_name, product }) => ({ value: name, name: `${display_name} (${product})` }))}
        choose={(chosen) => set({ plan: chosen, limit: '' })}
      />
      <LimitField isAmount={isAmount} value={draft.limit} error={faults.limit ?? null} change={(limit) => set({ limit })} />
      <DateField
        label="Expires (optional)"
        hint="The key stops at the beginning of this day."
        error={faults.expires}
        value={draft.expires}
        choose={(expires) => set({ expires })}
      />
      <p class="hint">
        What a key may do is set by <a href={hrefOf('/')}>its plan</a>.
      </p>
    </FormDialog>
  )
}
