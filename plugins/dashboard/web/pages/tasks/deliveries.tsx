import { useState } from 'preact/hooks'
import { listPayloads, redeliver, type Attempt, type Delivery } from '../../api/tasks.ts'
import { Button } from '../../components/button.tsx'
import { Card } from '../../components/card.tsx'
import { Async, useLoad, type Load } from '../../components/load.tsx'
import { Empty } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { Countdown } from '../../components/time.tsx'
import { toast, toastError } from '../../components/toasts.tsx'
import { exact } from '../../format.ts'
import { StatusBadge } from './status-badge.tsx'

export function Deliveries({ of: load }: { of: Load<Delivery[]> }) {
  return (
    <Card title="Webhook deliveries" hint="Each event is sent until the receiver answers with a 2xx status, or no attempt is left.">
      <Async of={load} lines={3}>
        {(deliveries) =>
          deliveries.length === 0 ? (
            <Empty icon="webhook" title="Nothing sent yet">
              The first event is sent when the task ends.
            </Empty>
          ) : (
            <ul class="stack">
              {deliveries.map((delivery) => (
                <DeliveryItem key={delivery.id} of={delivery} reload={load.reload} />
              ))}
            </ul>
          )
        }
      </Async>
    </Card>
  )
}

type Props = { of: Delivery; reload: () => Promise<void> }

function DeliveryItem({ of: { id, task_id: task, event, url, status, next_attempt_at: next, attempts }, reload }: Props) {
  const [isBusy, setBusy] = useState(false)
  const [isOpen, setOpen] = useState(false)
  async function again(): Promise<void> {
    setBusy(true)
    await redeliver(id).then(() => toast('The webhook is being sent again.'), toastError)
    setBusy(false)
    await reload()
  }
  return (
    <li class="delivery">
      <div class="card-head">
        <div>
          <h3>
            {event} <StatusBadge status={status} />
          </h3>
          <p class="muted mono break">{url}</p>
          {next !== null && (
            <p class="muted">
              Next attempt in <Countdown to={next} over="a moment" />
            </p>
          )}
        </div>
        <Button text="Redeliver" icon="send" look="small" disabled={isBusy} onClick={() => void again()} />
      </div>
      {attempts.length > 0 && <Attempts attempts={attempts} event={event} />}
      <details onToggle={({ currentTarget }) => setOpen(currentTarget.open)}>
        <summary>Payload</summary>
        {isOpen && <Payload delivery={id} task={task} />}
      </details>
    </li>
  )
}

/** What is sent, byte for byte but for white space and the signatures of links. */
function Payload({ delivery, task }: { delivery: string; task: string }) {
  const load = useLoad((abort) => listPayloads(task, abort), [task])
  return (
    <Async of={load} lines={3}>
      {(payloads) => (
        <>
          <pre class="json" tabIndex={0} aria-label="Payload">
            <code>{JSON.stringify(payloads.get(delivery), null, 2)}</code>
          </pre>
          <p class="hint">The signatures of links are left out: with them, anybody could open the result.</p>
        </>
      )}
    </Async>
  )
}

function Attempts({ attempts, event }: { attempts: Attempt[]; event: string }) {
  return (
    <DataTable
      caption={`Attempts to deliver ${event}`}
      rows={attempts}
      keyOf={({ number }) => String(number)}
      columns={[
        { name: 'Attempt', cell: ({ number, redelivery }) => `${number}${redelivery ? ' (redelivery)' : ''}` },
        { name: 'Time', cell: ({ at }) => exact(at) },
        { name: 'Answer', cell: ({ status_code: code, error }) => code ?? error ?? '–' },
        { name: 'Duration', number: true, cell: ({ duration_ms: ms }) => (ms === null ? '–' : `${ms} ms`) },
        {
          name: 'Body',
          cell: ({ response_prefix: prefix }) => <code class="clip">{prefix === null || prefix === '' ? '–' : prefix}</code>,
        },
      ]}
    />
  )
}
