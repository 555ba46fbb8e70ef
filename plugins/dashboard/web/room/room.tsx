/** The AI Room: make pictures, videos and music, and change them. */
import type { ComponentChildren } from 'preact'
import { useEffect, useMemo } from 'preact/hooks'
import { session } from '../api/session.ts'
import { isMedia, loadPlans, type Plan } from '../api/plans.ts'
import { isFinal, isKept, listTasks, readTask } from '../api/tasks.ts'
import { PageHead } from '../components/card.tsx'
import { Segmented } from '../components/field.tsx'
import { Async, useLoad } from '../components/load.tsx'
import { PlanPage } from '../components/plan-choice.tsx'
import { Composer } from './composer.tsx'
import { Editor } from './editor.tsx'
import { Gallery } from './gallery.tsx'
import { readKinds, type Kinds } from './media-api.ts'
import { openRoomState, RoomContext, type RoomState } from './room-state.ts'
import { Running } from './running.tsx'
import { Stage } from './stage.tsx'
import './room.css'
import './kind-choice.css'
import './composer.css'
import './operation-fields.css'
import './stage.css'
import './compare.css'
import './running.css'
import './gallery.css'
import './sources.css'
import './mask-brush.css'
import './trim-handles.css'

const LOCKED = {
  title: 'The AI Room is locked',
  text: 'It comes with a Room or a Media plan: images, video and music from your words, and six operations to change them. Whoever manages your plans can add one.',
  icon: 'lock',
} as const

const MODES = [
  { value: 'make', name: 'Make' },
  { value: 'edit', name: 'Edit' },
]

/** What the engines offer can change while the page is open. */
const KINDS_MS = 60_000

export function Room() {
  const state = useMemo(openRoomState, [])
  useEffect(() => state.stop, [])
  return (
    <div class="room stack">
      <PageHead title="AI Room" />
      <PlanPage of={isMedia} locked={LOCKED} choiceLabel="Plan that pays">
        {(plan, choice) => <Workbench state={state} plan={plan} choice={choice} />}
      </PlanPage>
    </div>
  )
}

function Workbench({ state, plan, choice }: { state: RoomState; plan: Plan; choice: ComponentChildren }) {
  const kinds = useLoad<Kinds>(readKinds, [session.value?.tenant], KINDS_MS)
  useEffect(() => void resume(state), [])
  return (
    <Async of={kinds} lines={8}>
      {(data) => (
        <RoomContext.Provider value={{ state, plan: plan.name, kinds: data, reloadPlans: () => void loadPlans() }}>
          <div class="room-bench">
            <section class="card room-form" aria-label="What to make">
              <Segmented
                label="Make something new, or edit"
                value={state.mode.value}
                choices={MODES}
                choose={(mode) => (state.mode.value = mode as 'make' | 'edit')}
              />
              {choice}
              {state.mode.value === 'make' ? <Composer /> : <Editor />}
            </section>
            <div class="stack">
              <Stage />
              <Running />
              <Gallery />
            </div>
          </div>
        </RoomContext.Provider>
      )}
    </Async>
  )
}

/** Follows what was under way before the page was opened, and brings back what was on the stage. */
async function resume(state: RoomState): Promise<void> {
  const { shown } = state
  if (shown && state.current.value === null) {
    const task = await readTask(shown.object, shown.id).catch(() => null)
    if (state.current.value === null && task && (!task.result || isKept(task))) state.current.value = task
  }
  const { signal } = new AbortController()
  const { data } = await listTasks({}, signal).catch(() => ({ data: [] }))
  for (const task of data) if (!isFinal(task)) state.start(task)
}
