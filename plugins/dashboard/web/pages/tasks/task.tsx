/** One task: what it made or why it failed, its history, its costs, and every attempt to deliver its webhooks. */
import { cancelTask, isFinal, listDeliveries, readTask, resultsOf, taskKind, type Task as TaskRecord } from '../../api/tasks.ts'
import { Problem } from '../../api/client.ts'
import { Button } from '../../components/button.tsx'
import { Amount, Card, Fact, PageHead } from '../../components/card.tsx'
import { CopyButton } from '../../components/copy.tsx'
import { Icon } from '../../components/icon.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Empty, Notice } from '../../components/states.tsx'
import { toast, toastError } from '../../components/toasts.tsx'
import { label, money, span } from '../../format.ts'
import { here, hrefOf } from '../../router.ts'
import { Deliveries } from './deliveries.tsx'
import { History } from './history.tsx'
import { Media } from './media.tsx'
import { StatusBadge } from './status-badge.tsx'

const TASK_MS = 1500
const DELIVERIES_MS = 2000

/** Reads a task of either collection: the address may not say which. */
async function find(id: string, abort: AbortSignal): Promise<TaskRecord | null> {
  for (const object of here.value.query.get('object') === 'operation'
    ? (['operation', 'generation'] as const)
    : (['generation', 'operation'] as const)) {
    try {
      return await readTask(object, id, abort)
    } catch (error) {
      // A tenant without a plan for media has no tasks.
      if (!(error instanceof Problem) || (error.status !== 404 && error.code !== 'plan_not_allowed')) throw error
    }
  }
  return null
}

export function TaskPage({ id }: { id: string }) {
  const load = useLoad((abort) => find(id, abort), [id], TASK_MS)
  return (
    <>
      <a class="more" href={hrefOf('/tasks')}>
        <Icon name="back" size={16} /> All tasks
      </a>
      <Async of={load} lines={8}>
        {(task) => (task ? <Shown task={task} reload={load.reload} /> : <NoTask />)}
      </Async>
    </>
  )
}

function NoTask() {
  return (
    <>
      <PageHead title="Task" />
      <Empty icon="tasks" title="There is no such task">
        It belongs to another tenant, or was removed after its time.
      </Empty>
    </>
  )
}

function Shown({ task, reload }: { task: TaskRecord; reload: () => Promise<void> }) {
  const hasWebhook = task.webhook_url !== null
  const deliveries = useLoad(
    (abort) => (hasWebhook ? listDeliveries(task.object, task.id, abort) : Promise.resolve([])),
    [task.id],
    hasWebhook ? DELIVERIES_MS : undefined,
  )
  const cancel = () =>
    cancelTask(task)
      .then(() => toast('The task is being canceled.'), toastError)
      .then(reload)
  return (
    <>
      <PageHead
        title={label(taskKind(task))}
        lead={
          <span class="row">
            <StatusBadge status={task.status} />
            <code class="break">{task.id}</code>
            <CopyButton text={task.id} label="Copy id" />
          </span>
        }
        actions={!isFinal(task) && <Button text="Cancel" icon="close" onClick={() => void cancel()} />}
      />
      {task.error && (
        <Notice tone="danger" title={`Failed: ${label(task.error.code)}`}>
          {task.error.message} {task.refund_amount && `${money(task.refund_amount)} went back to the allowance.`}
        </Notice>
      )}
      <div class="grid wide">
        {resultsOf(task).map((result, index) => (
          <Media key={index} task={task} result={result} />
        ))}
        <div class="stack">
          <Request {...task} />
          <Costs {...task} />
          <History task={task} deliveries={deliveries.value.value.data ?? []} />
        </div>
      </div>
      {hasWebhook && <Deliveries of={deliveries} />}
    </>
  )
}

function Request({ prompt, input, metadata }: TaskRecord) {
  const rows = Object.entries(metadata)
  return (
    <Card title="Request">
      {prompt && <blockquote class="break">{prompt}</blockquote>}
      {input && (
        <pre class="json" tabIndex={0} aria-label="Parameters">
          <code>{JSON.stringify(input, null, 2)}</code>
        </pre>
      )}
      {rows.length > 0 && (
        <dl class="facts" aria-label="Metadata">
          {rows.map(([name, value]) => (
            <Fact key={name} name={name}>
              {value}
            </Fact>
          ))}
        </dl>
      )}
    </Card>
  )
}

function Costs({ estimated_cost: estimated, actual_cost: actual, refund_amount: refund, attempts, duration_seconds: seconds }: TaskRecord) {
  return (
    <Card title="Costs">
      <dl class="facts">
        <Fact name={actual === null ? 'Held' : 'Charged'} isBig>
          <Amount of={actual ?? estimated} />
        </Fact>
        <Fact name="Estimated">
          <Amount of={estimated} />
        </Fact>
        <Fact name="Given back">{refund === null ? '–' : <Amount of={refund} />}</Fact>
        <Fact name="Runs">{attempts}</Fact>
        <Fact name="Processing time">{seconds === null ? '–' : span(seconds * 1000)}</Fact>
      </dl>
    </Card>
  )
}
