/** Tasks of the tenant, newest first, as a table with filters and pages. */
import { collectionOf, KINDS, listTasks, OPERATIONS, STATUSES, taskKind, type Collection, type Filter, type Task } from '../../api/tasks.ts'
import { DateInput, Field, Segmented, Select } from '../../components/field.tsx'
import { Icon } from '../../components/icon.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Empty } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { Ago } from '../../components/time.tsx'
import { label, money } from '../../format.ts'
import { hrefOf } from '../../router.ts'
import { StatusBadge } from './status-badge.tsx'

const TASKS_MS = 3000
const COLLECTIONS = [
  { value: 'generations', name: 'Generations' },
  { value: 'operations', name: 'Operations' },
]

/** What of them is shown. `created_after` and `created_before` are days, as 2026-11-23. */
export type View = { collection: Collection; filter: Filter }
type Props = { view: View; show: (view: View) => void }

/** `show` gets each view that the person chooses. */
export function TaskBrowser({ view, show }: Props) {
  const load = useLoad((abort) => listTasks(view.collection, withTimes(view.filter), abort), [JSON.stringify(view)], TASKS_MS)
  return (
    <>
      <Filters view={view} show={show} />
      <section class="card" aria-label="Tasks">
        <Async of={load} lines={8}>
          {(page) => (
            <>
              {page.data.length === 0 ? <NoTasks isFiltered={Object.keys(view.filter).length > 0} /> : <List tasks={page.data} />}
              <Pages view={view} show={show} next={page.has_more ? page.next_cursor : null} />
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

function Filters({ view: { collection, filter }, show }: Props) {
  const kinds = collection === 'generations' ? KINDS : OPERATIONS
  const name = collection === 'generations' ? 'kind' : 'operation'
  const set = (change: Filter) => {
    const { cursor: _start, ...kept } = { ...filter, ...change }
    show({ collection, filter: Object.fromEntries(Object.entries(kept).filter(([, value]) => value !== '')) })
  }
  const choose = (value: string) => {
    const { kind: _kind, operation: _operation, cursor: _start, ...kept } = filter
    show({ collection: value as Collection, filter: kept })
  }
  const any = (names: readonly string[]) => [{ value: '', name: 'Any' }, ...names.map((value) => ({ value, name: label(value) }))]
  return (
    <div class="filters" role="search" aria-label="Filter tasks">
      <Segmented label="Tasks" value={collection} choices={COLLECTIONS} choose={choose} />
      <Field label="Status">
        {(wired) => <Select wired={wired} value={filter.status ?? ''} choices={any(STATUSES)} choose={(status) => set({ status })} />}
      </Field>
      <Field label={label(name)}>
        {(wired) => <Select wired={wired} value={filter[name] ?? ''} choices={any(kinds)} choose={(value) => set({ [name]: value })} />}
      </Field>
      <Field label="From">
        {(wired) => <DateInput wired={wired} value={filter.created_after ?? ''} choose={(created_after) => set({ created_after })} />}
      </Field>
      <Field label="To">
        {(wired) => <DateInput wired={wired} value={filter.created_before ?? ''} choose={(created_before) => set({ created_before })} />}
      </Field>
    </div>
  )
}

function NoTasks({ isFiltered }: { isFiltered: boolean }) {
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
      {task.prompt && <span class="muted clip">{task.prompt}</span>}
      {collectionOf(task.object) === 'operations' && <span class="muted mono clip">{task.id}</span>}
    </a>
  )
}

function Pages({ view, show, next }: Props & { next: string | null }) {
  const { cursor, ...filter } = view.filter
  if (cursor === undefined && next === null) return null
  return (
    <nav class="row" aria-label="Pages of tasks">
      {cursor !== undefined && (
        <button type="button" class="button small" onClick={() => show({ ...view, filter })}>
          Newest
        </button>
      )}
      {next !== null && (
        <button type="button" class="button small" onClick={() => show({ ...view, filter: { ...filter, cursor: next } })}>
          Older <Icon name="chevron" size={16} />
        </button>
      )}
    </nav>
  )
}
