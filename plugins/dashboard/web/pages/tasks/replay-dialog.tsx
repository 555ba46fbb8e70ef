import { useState } from 'preact/hooks'
import { replay, WEBHOOKS, type Replay } from '../../api/tasks.ts'
import { serverTime } from '../../clock.ts'
import { Dialog, DialogActions } from '../../components/dialog.tsx'
import { DateInput, Field, Select } from '../../components/field.tsx'
import { toast } from '../../components/toasts.tsx'
import { label } from '../../format.ts'

const DAY_MS = 86_400_000
const EVENTS = ['task.completed', 'task.failed', 'task.refunded'].map((value) => ({ value, name: value }))
const STATES = WEBHOOKS.map((value) => ({ value, name: label(value) }))
const any = (choices: { value: string; name: string }[]) => [{ value: '', name: 'Any' }, ...choices]

/** A time as `datetime-local` shows it. */
function local(ms: number): string {
  return new Date(ms - new Date(ms).getTimezoneOffset() * 60_000).toISOString().slice(0, 16)
}

/** Sends webhooks of a time range again, for a receiver that was down. */
export function ReplayDialog({ close }: { close: () => void }) {
  const [range, setRange] = useState({
    since: local(serverTime() - DAY_MS),
    until: local(serverTime() + 60_000),
    event: '',
    status: 'failed',
  })
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<Error | null>(null)
  const set = (change: Partial<typeof range>) => setRange({ ...range, ...change })
  async function submit(): Promise<void> {
    setBusy(true)
    setError(null)
    try {
      const body: Replay = {
        since: new Date(range.since).toISOString(),
        until: new Date(range.until).toISOString(),
        ...(range.event ? { event: range.event } : {}),
        ...(range.status ? { status: range.status } : {}),
      }
      const count = await replay(body)
      toast(
        count === 0
          ? 'No delivery fits, so none is sent again.'
          : `${count} ${count === 1 ? 'delivery is' : 'deliveries are'} being sent again.`,
        count === 0 ? 'info' : 'ok',
      )
      close()
    } catch (failure) {
      setError(failure instanceof RangeError ? new Error('Give both times.') : (failure as Error))
      setBusy(false)
    }
  }
  return (
    <Dialog title="Replay webhooks" close={close}>
      <form class="form" onSubmit={(event) => (event.preventDefault(), void submit())}>
        <p>
          Sends the webhooks of this time range again, at most 31 days at a time. Their ids stay the same, so your receiver can skip those
          it already has.
        </p>
        <div class="grid two">
          <Field label="From">
            {(wired) => <DateInput wired={wired} type="datetime-local" isRequired value={range.since} choose={(since) => set({ since })} />}
          </Field>
          <Field label="To">
            {(wired) => <DateInput wired={wired} type="datetime-local" isRequired value={range.until} choose={(until) => set({ until })} />}
          </Field>
          <Field label="Event">
            {(wired) => <Select wired={wired} value={range.event} choices={any(EVENTS)} choose={(event) => set({ event })} />}
          </Field>
          <Field label="Status">
            {(wired) => <Select wired={wired} value={range.status} choices={any(STATES)} choose={(status) => set({ status })} />}
          </Field>
        </div>
        <DialogActions action="Replay" isDisabled={isBusy} error={error} close={close} />
      </form>
    </Dialog>
  )
}
