import { useState } from 'preact/hooks'
import { limitKey, type Key } from '../../api/keys.ts'
import { FormDialog } from '../../components/dialog.tsx'
import { toast } from '../../components/toasts.tsx'
import { LimitField, limitFaults, limitOf } from './limit-field.tsx'

/** Sets how much of its plan a key may use, or removes the limit. */
export function LimitDialog({ of: key, close, changed }: { of: Key; close: () => void; changed: () => Promise<void> }) {
  const isAmount = key.product !== 'Coding'
  const [limit, setLimit] = useState(String(key.limit?.amount_per_period ?? key.limit?.weekly_tokens ?? ''))
  const fault = limitFaults(limit, isAmount).limit ?? null
  async function submit(): Promise<void> {
    if (fault !== null) return
    await limitKey(key, limit === '' ? null : limitOf(limit, isAmount))
    toast(`${key.name} has ${limit === '' ? 'no limit of its own' : 'a new limit'}.`)
    close()
    await changed()
  }
  return (
    <FormDialog title={`Limit of ${key.name}`} action="Save" close={close} submit={submit}>
      <LimitField isAmount={isAmount} value={limit} error={fault} change={setLimit} />
      <p class="hint">
        Empty: the limits of its plan alone. The name cannot change, because it is that of the ApiKey resource: for another name, issue a
        key and revoke this one.
      </p>
    </FormDialog>
  )
}
