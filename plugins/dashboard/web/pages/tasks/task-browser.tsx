/** Tasks of the tenant, newest first, as a table with filters and pages. */
import { KINDS, listTasks, OPERATIONS, STATUSES, taskKind, WEBHOOKS, type Filter, type Task } from '../../api/tasks.ts'
import { DateField, SelectField } from '../../components/field.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Pages } from '../../components/pages.tsx'
import { Empty } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { Ago } from '../../components/time.tsx'
import { count, label, money } from '../../format.ts'
import { hrefOf } from '../../router.ts'
import { StatusBadge } from './status-badge.tsx'

const TASKS_MS = 3000

/** `created_after` and `created_before` are days, as 2026-11-23. */
type Props = { filter: Filter; show: (filter: Filter) => void }

/** `show` gets each filter that the person chooses. */
export function TaskBrowser({ filter, show }: Props) {
  // The state of webhooks is looked for task by task: that is too much for every few seconds.
  const everyMs = filter.webhook === undefined ? TASKS_MS : undefined
  const load = useLoad((abort) => listTasks(withTimes(filter), abort), [JSON.stringify(filter)], everyMs)
  const { cursor: _at, ...newest } = filter
  return (
    <>
      <Filters filter={filter} show={show} />
      <section class="card" aria-label="Tasks">
        <Async of={load} lines={8}>
          {(page) => (
            <>
              {page.data.length === 0 ? <NoTasks filter={filter} examined={page.examined} /> : <List tasks={page.data} />}
              <Pages
                of="tasks"
                isFirst={filter.cursor === undefined}
                next={page.has_more ? page.next_cursor : null}
                show={(cursor) => show(cursor === null ? newest : { ...newest, cursor })}
              />
            </>
          )}
        </Async>
      </section>
    </>
  )
}

/** Days of the filters are whole days of the person's clock. */
function withTimes({ created_after: after, created_before: before, ...filter }: Filter): Filter {
  const iso = (day: string, time: string) => new Date(`${day}T${time}`).toISOString()
  return {
    ...filter,
    ...(after ? { created_after: iso(after, '00:00:00') } : {}),
    ...(before ? { created_before: iso(before, '23:59:59.999') } : {}),
  }
}

function Filters({ filter, show }: Props) {
  const set = (change: Filter) => {
    const { cursor: _start, ...kept } = { ...filter, ...change }
    show(Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== '')))
  }
  const any = (names: readonly string[]) => [{ value: '', name: 'Any' }, ...names.map((value) => ({ value, name: label(value) }))]
  return (
    <div class="filters" role="search" aria-label="Filter tasks">
      <SelectField label="Kind" value={filter.kind ?? ''} choices={any([...KINDS, ...OPERATIONS])} choose={(kind) => set({ kind })} />
      <SelectField label="Status" value={filter.status ?? ''} choices={any(STATUSES)} choose={(status) => set({ status })} />
      <SelectField label="Webhook" value={filter.webhook ?? ''} choices={any(WEBHOOKS)} choose={(webhook) => set({ webhook })} />
      <DateField label="From" value={filter.created_after ?? ''} choose={(created_after) => set({ created_after })} />
      <DateField label="To" value={filter.created_before ?? ''} choose={(created_before) => set({ created_before })} />
    </div>
  )
}

/** `examined`: so many tasks were looked at, and there are more. */
function NoTasks({ filter, examined }: { filter: Filter; examined: number | undefined }) {
  const isFiltered = Object.keys(filter).length > 0
  if (examined !== undefined) {
    return (
      <Empty icon="tasks" title={`None among the ${filter.cursor === undefined ? 'newest' : 'next'} ${count(examined)} tasks`}>
        Older ones may match.
      </Empty>
    )
  }
  return (
    <Empty icon="tasks" title={isFiltered ? 'No task matches the filters' : 'No tasks yet'}>
      {isFiltered
        ? 'Other filters may find it. Tasks are removed after some weeks.'
        : 'Make something in the AI Room, or by the Media API, and it appears here.'}
    </Empty>
  )
}

function List({ tasks }: { tasks: Task[] }) {
  return (
    <DataTable
      caption="Tasks, newest first"
      rows={tasks}
      keyOf={({ id }) => id}
      columns={[
        { name: 'Task', cell: (task) => <Name {...task} /> },
        { name: 'Status', cell: (task) => <Status {...task} /> },
        { name: 'Webhook', cell: ({ webhook }) => (webhook ? <StatusBadge status={webhook} /> : <span class="muted">none</span>) },
        {
          name: 'Cost',
          number: true,
          cell: ({ actual_cost: actual, estimated_cost: estimated }) =>
            actual === null ? <span class="muted">{money(estimated)} held</span> : money(actual),
        },
        { name: 'Created', number: true, cell: ({ created_at: created }) => <Ago at={created} /> },
      ]}
    />
  )
}

function Status({ status, progress }: Task) {
  return (
    <span class="row">
      <StatusBadge status={status} />
      {status === 'processing' && `${progress}%`}
    </span>
  )
}

function Name(task: Task) {
  return (
    <a class="task-name" href={hrefOf(`/tasks/${task.id}?object=${task.object}`)}>
      <strong>{label(taskKind(task))}</strong>
      <span class="muted clip">{task.prompt || String(task.input?.['prompt'] ?? task.id)}</span>
    </a>
  )
}
