/** All tasks of the tenant, newest first, by filters that are in the address. */
import { useState } from 'preact/hooks'
import { isMedia, plans } from '../../api/plans.ts'
import type { Filter } from '../../api/tasks.ts'
import { Button } from '../../components/button.tsx'
import { PageHead } from '../../components/card.tsx'
import { Locked } from '../../components/plan-choice.tsx'
import { go, here } from '../../router.ts'
import { ReplayDialog } from './replay-dialog.tsx'
import { TaskBrowser } from './task-browser.tsx'

const FILTERS = ['status', 'kind', 'webhook', 'created_after', 'created_before', 'cursor']

/** Shows other tasks. Filters begin at the newest task again; a cursor is a step in the history. */
function show(filter: Filter): void {
  const search = new URLSearchParams(filter)
  go(`/tasks${search.size > 0 ? `?${search}` : ''}`, { replace: filter.cursor === undefined })
}

const LOCKED = {
  title: 'No plan for media',
  icon: 'lock' as const,
  text: 'A Media or Room plan makes images, video and music. Its tasks and their webhooks appear here.',
}

export function Tasks() {
  // Only plans for media, active or not, have tasks.
  if (plans.value === null || plans.value.some(isMedia)) return <TaskList />
  return (
    <>
      <PageHead title="Tasks and webhooks" />
      <Locked {...LOCKED} />
    </>
  )
}

function TaskList() {
  const [isReplaying, setReplaying] = useState(false)
  const { query } = here.value
  const filter: Filter = Object.fromEntries(FILTERS.flatMap((name) => (query.get(name) ? [[name, query.get(name)]] : [])))
  return (
    <>
      <PageHead
        title="Tasks and webhooks"
        lead="Every generation and operation of recent weeks: what it was, what it cost, and how its webhook was delivered."
        actions={<Button text="Replay webhooks" icon="webhook" onClick={() => setReplaying(true)} />}
      />
      <TaskBrowser filter={filter} show={show} />
      {isReplaying && <ReplayDialog close={() => setReplaying(false)} />}
    </>
  )
}
