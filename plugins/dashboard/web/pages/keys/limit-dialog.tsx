import { useState } from 'preact/hooks'
import { limitKey, type Key } from '../../api/keys.ts'
import { Dialog, DialogActions } from '../../components/dialog.tsx'
import { toast } from '../../components/toasts.tsx'
import { LimitField, limitFaults, limitOf } from './limit-field.tsx'

/** Sets how much of its plan a key may use, or removes the limit. */
export function LimitDialog({ of: key, close, changed }: { of: Key; close: () => void; changed: () => Promise<void> }) {
  const isAmount = key.product !== 'Coding'
  const [limit, setLimit] = useState(String(key.limit?.amount_per_period ?? key.limit?.weekly_tokens ?? ''))
  const [error, setError] = useState<Error | null>(null)
  const [isBusy, setBusy] = useState(false)
  const fault = limitFaults(limit, isAmount).limit ?? null
  async function submit(): Promise<void> {
    if (fault !== null || isBusy) return
    setBusy(true)
    try {
      await limitKey(key, limit === '' ? null : limitOf(limit, isAmount))
      toast(`${key.name} has ${limit === '' ? 'no limit of its own' : 'a new limit'}.`)
      close()
      await changed()
    } catch (failure) {
      setError(failure as Error)
      setBusy(false)
    }
  }
  return (
    <Dialog title={`Limit of ${key.name}`} close={close}>
      <form class="form" noValidate onSubmit={(event) => (event.preventDefault(), void submit())}>
        <LimitField isAmount={isAmount} value={limit} error={fault} change={setLimit} />
        <p class="hint">
          Empty: the limits of its plan alone. The name cannot change, because it is that of the ApiKey resource: for another name, issue a
          key and revoke this one.
        </p>
        <DialogActions action="Save" isDisabled={isBusy} error={error} close={close} />
      </form>
    </Dialog>
  )
}
