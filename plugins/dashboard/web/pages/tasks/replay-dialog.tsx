import { useState } from 'preact/hooks'
import { replay, WEBHOOKS } from '../../api/tasks.ts'
import { serverTime } from '../../clock.ts'
import { FormDialog } from '../../components/dialog.tsx'
import { DateField, SelectField } from '../../components/field.tsx'
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
  const set = (change: Partial<typeof range>) => setRange({ ...range, ...change })
  async function submit(): Promise<void> {
    const { since, until, event, status } = range
    if (since === '' || until === '') throw new Error('Give both times.')
    const count = await replay({
      since: new Date(since).toISOString(),
      until: new Date(until).toISOString(),
      ...(event ? { event } : {}),
      ...(status ? { status } : {}),
    })
    toast(
      count === 0
        ? 'No delivery fits, so none is sent again.'
        : `${count} ${count === 1 ? 'delivery is' : 'deliveries are'} being sent again.`,
      count === 0 ? 'info' : 'ok',
    )
    close()
  }
  return (
    <FormDialog title="Replay webhooks" action="Replay" close={close} submit={submit}>
      <p>
        Sends the webhooks of this time range again, at most 31 days at a time. Their ids stay the same, so your receiver can skip those it
        already has.
      </p>
      <div class="grid two">
        <DateField label="From" type="datetime-local" value={range.since} choose={(since) => set({ since })} />
        <DateField label="To" type="datetime-local" value={range.until} choose={(until) => set({ until })} />
        <SelectField label="Event" value={range.event} choices={any(EVENTS)} choose={(event) => set({ event })} />
        <SelectField label="Status" value={range.status} choices={any(STATES)} choose={(status) => set({ status })} />
      </div>
    </FormDialog>
  )
}
