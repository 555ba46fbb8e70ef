/** What happened to a task, in order: its events, the attempts to deliver its webhooks, and the end of its result. */
import { useEffect, useState } from 'preact/hooks'
import { followHistory, isFinal, type Delivery, type Task, type TaskEvent } from '../../api/tasks.ts'
import { now } from '../../clock.ts'
import { Card } from '../../components/card.tsx'
import { Failed, Loading } from '../../components/states.tsx'
import { exact, money } from '../../format.ts'

type Step = { key: string; name: string; detail: string | null; at: string; isFault?: boolean }

export function History({ task, deliveries }: { task: Task; deliveries: Delivery[] }) {
  const [events, setEvents] = useState<TaskEvent[]>([])
  const [isCut, setCut] = useState(false)
  const [tries, setTries] = useState(0)
  useEffect(() => {
    setCut(false)
    return followHistory(
      task,
      (event) => setEvents((all) => [...all.filter(({ sequence }) => sequence !== event.sequence), event]),
      () => setCut(true),
    )
  }, [task.id, tries])
  const steps = [...events.flatMap((event) => stepOf(event, task.attempts)), ...deliveries.flatMap(attemptsOf), ...removal(task)].sort(
    (one, other) => Date.parse(one.at) - Date.parse(other.at),
  )
  return (
    <Card title="History">
      {events.length === 0 &&
        (isCut ? (
          <Failed error={new Error('The events of this task cannot be read at the moment.')} retry={() => setTries(tries + 1)} />
        ) : (
          <Loading lines={4} />
        ))}
      <ol class="timeline">
        {steps.map(({ key, name, detail, at, isFault }) => (
          <li key={key} class={isFault ? 'fault' : undefined}>
            <strong>{name}</strong>
            {detail !== null && <span class="break">{detail}</span>}
            <time dateTime={at} class="muted">
              {exact(at)}
            </time>
          </li>
        ))}
        {!isFinal(task) && (
          <li class="now" role="status">
            <strong>{present(task)}</strong>
          </li>
        )}
      </ol>
    </Card>
  )
}

function present({ status, queue_position: position, progress, attempts }: Task): string {
  if (status === 'queued') return `In the queue${position === null ? '' : `, position ${position}`}`
  return `Processing${attempts > 1 ? `, run ${attempts}` : ''}, ${progress}%`
}

const runs = (count: number): string => `${count} ${count === 1 ? 'run' : 'runs'}`

/** One step for an event, or none: `task.refunded` repeats `balance.returned`, and progress is the present. */
function stepOf({ sequence, name, data }: TaskEvent, attempts: number): Step[] {
  const text = (member: string) => String(data[member] ?? '')
  const amount = () => money(text('amount'))
  const step = (title: string, detail: string | null, at: string, isFault = false): Step[] => [
    { key: String(sequence), name: title, detail, at: text(at), isFault },
  ]
  switch (name) {
    case 'task.created':
      return step('Created', null, 'created_at')
    case 'balance.held':
      return step('Held', `${amount()} of the allowance`, 'at')
    case 'task.queued':
      return step('Queued', null, 'at')
    case 'task.processing':
      return step('First run began', null, 'at')
    case 'balance.burned':
      return step('Charged', amount(), 'at')
    case 'balance.returned':
      return step('Refunded', `${amount()} went back to the allowance`, 'at')
    case 'task.completed':
      return step('Completed', attempts > 1 ? `after ${runs(attempts)}` : null, 'completed_at')
    case 'task.failed':
      return step('Failed', `${(data['error'] as { message: string }).message} ${runs(Number(data['attempts']))}.`, 'failed_at', true)
    case 'task.canceled':
      return step('Canceled', attempts > 0 ? `after ${runs(attempts)}` : 'before its first run', 'canceled_at')
    default:
      return []
  }
}

function attemptsOf({ id, event, attempts }: Delivery): Step[] {
  return attempts.map(({ number, at, status_code: code, error, redelivery }) => ({
    key: `${id} ${number}`,
    name: redelivery ? 'Webhook redelivered' : 'Webhook sent',
    detail: `${event}, attempt ${number}: ${code ?? error ?? 'no answer'}`,
    at,
    isFault: error !== null,
  }))
}

function removal({ result }: Task): Step[] {
  if (result === null || Date.parse(result.expires_at) > now.value) return []
  return [{ key: 'removed', name: 'Result removed', detail: null, at: result.expires_at }]
}
