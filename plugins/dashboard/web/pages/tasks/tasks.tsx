/** All tasks of the tenant, newest first, by filters that are in the address. */
import { useState } from 'preact/hooks'
import { isMedia, plans } from '../../api/plans.ts'
import { collectionOf, isFinal, KINDS, listTasks, OPERATIONS, STATUSES, verbOf, type Collection, type Filter, type Task } from '../../api/tasks.ts'
import { PageHead } from '../../components/card.tsx'
import { Field, Segmented, Select } from '../../components/field.tsx'
import { Icon } from '../../components/icon.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Locked } from '../../components/plan-choice.tsx'
import { Empty } from '../../components/states.tsx'
import { DataTable } from '../../components/table.tsx'
import { Ago } from '../../components/time.tsx'
import { label, money } from '../../format.ts'
import { go, here, hrefOf } from '../../router.ts'
import { ReplayDialog } from './replay-dialog.tsx'
import { StatusBadge } from './status-badge.tsx'

const TASKS_MS = 3000
const COLLECTIONS = [
  { value: 'generations', name: 'Generations' },
  { value: 'operations', name: 'Operations' },
]

type View = { collection: Collection; filter: Filter }

function viewOf(query: URLSearchParams): View {
  const collection = query.get('show') === 'operations' ? 'operations' : 'generations'
  const filter = Object.fromEntries(['status', 'kind', 'operation', 'created_after', 'created_before', 'cursor'].flatMap((name) => (query.get(name) ? [[name, query.get(name)]] : []))) as Filter
  return { collection, filter }
}

/** Shows another view. Filters begin at the newest task again; a cursor is a step in the history. */
function show({ collection, filter }: View): void {
  const given = Object.entries(filter).filter(([, value]) => value !== '')
  const search = new URLSearchParams([...(collection === 'operations' ? [['show', collection]] : []), ...given] as string[][])
  go(`/tasks${search.size > 0 ? `?${search}` : ''}`, { replace: filter.cursor === undefined })
}

const LOCKED = { title: 'No plan for media', icon: 'lock' as const, text: 'A Media or Room plan makes images, video and music. Its tasks and their webhooks appear here.' }

/** True for a tenant of which no plan, active or not, can have tasks. */
const hasNoTasks = (): boolean => plans.value !== null && !plans.value.some(isMedia)

export function Tasks() {
  if (!hasNoTasks()) return <TaskList />
  return (
    <>
      <PageHead title="Tasks and webhooks" />
      <Locked {...LOCKED} />
    </>
  )
}

function TaskList() {
  const [isReplaying, setReplaying] = useState(false)
  const view = viewOf(here.value.query)
  const load = useLoad((abort) => listTasks(view.collection, withTimes(view.filter), abort), [JSON.stringify(view)], TASKS_MS)
  return (
    <>
      <PageHead
        title="Tasks and webhooks"
        lead="Every generation and operation of recent weeks: what it was, what it cost, and how its webhook was delivered."
        actions={
          <button type="button" class="button" onClick={() => setReplaying(true)}>
            <Icon name="webhook" size={18} /> Replay webhooks
          </button>
        }
      />
      <Filters {...view} />
      <section class="card" aria-label="Tasks">
        <Async of={load} lines={8}>
          {(page) => (
            <>
              {page.data.length === 0 ? <NoTasks isFiltered={Object.keys(view.filter).length > 0} /> : <List tasks={page.data} />}
              <Pages view={view} next={page.has_more ? page.next_cursor : null} />
            </>
          )}
        </Async>
      </section>
      {isReplaying && <ReplayDialog close={() => setReplaying(false)} />}
    </>
  )
}

/** Days of the filters are whole days of the person's clock. */
function withTimes({ created_after: after, created_before: before, ...filter }: Filter): Filter {
  const iso = (day: string, time: string) => new Date(`${day}T${time}`).toISOString()
  return { ...filter, ...(after ? { created_after: iso(after, '00:00:00') } : {}), ...(before ? { created_before: iso(before, '23:59:59.999') } : {}) }
}

function Filters({ collection, filter }: View) {
  const verbs = collection === 'generations' ? KINDS : OPERATIONS
  const verb = collection === 'generations' ? 'kind' : 'operation'
  const set = (change: Filter) => {
    const { cursor: _start, ...kept } = { ...filter, ...change }
    show({ collection, filter: kept })
  }
  const any = (names: readonly string[]) => [{ value: '', name: 'Any' }, ...names.map((value) => ({ value, name: label(value) }))]
  return (
    <div class="filters" role="search" aria-label="Filter tasks">
      <Segmented label="Tasks" value={collection} choices={COLLECTIONS} choose={(value) => show({ collection: value as Collection, filter: filter.status ? { status: filter.status } : {} })} />
      <Field label="Status">{(wired) => <Select wired={wired} value={filter.status ?? ''} choices={any(STATUSES)} choose={(status) => set({ status })} />}</Field>
      <Field label={label(verb)}>{(wired) => <Select wired={wired} value={filter[verb] ?? ''} choices={any(verbs)} choose={(value) => set({ [verb]: value })} />}</Field>
      <Field label="From">{(wired) => <input {...wired} class="input" type="date" value={filter.created_after ?? ''} onChange={(event) => set({ created_after: event.currentTarget.value })} />}</Field>
      <Field label="To">{(wired) => <input {...wired} class="input" type="date" value={filter.created_before ?? ''} onChange={(event) => set({ created_before: event.currentTarget.value })} />}</Field>
    </div>
  )
}

function NoTasks({ isFiltered }: { isFiltered: boolean }) {
  return (
    <Empty icon="tasks" title={isFiltered ? 'No task matches the filters' : 'No tasks yet'}>
      {isFiltered ? 'Other filters may find it. Tasks are removed after some weeks.' : 'Make something in the AI Room, or by the Media API, and it appears here.'}
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
        { name: 'Status', cell: (task) => <StatusBadge status={task.status} /> },
        { name: 'Progress', number: true, cell: (task) => (isFinal(task) ? '–' : `${task.progress}%`) },
        { name: 'Cost', number: true, cell: ({ actual_cost: actual, estimated_cost: estimated }) => (actual === null ? <span class="muted">{money(estimated)} held</span> : money(actual)) },
        { name: 'Created', number: true, cell: ({ created_at: created }) => <Ago at={created} /> },
      ]}
    />
  )
}

function Name(task: Task) {
  return (
    <a class="task-name" href={hrefOf(`/tasks/${task.id}?object=${task.object}`)}>
      <strong>{label(verbOf(task))}</strong>
      {task.prompt && <span class="muted clip">{task.prompt}</span>}
      {collectionOf(task.object) === 'operations' && <span class="muted mono clip">{task.id}</span>}
    </a>
  )
}

function Pages({ view, next }: { view: View; next: string | null }) {
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
