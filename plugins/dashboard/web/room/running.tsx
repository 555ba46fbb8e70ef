/** Tasks under way besides the one on the stage. */
import { iconOf, nameOf } from './labels.ts'
import { taskKind } from '../api/tasks.ts'
import { useRoom } from './room-state.ts'
import { Icon } from '../components/icon.tsx'

export function Running() {
  const { state } = useRoom()
  const others = state.running.value.filter(({ id }) => id !== state.current.value?.id)
  if (others.length === 0) return null
  return (
    <section class="card" aria-label="Under way">
      <ul class="running">
        {others.map((task) => (
          <li key={task.id}>
            <button type="button" class="running-item" onClick={() => (state.current.value = task)}>
              <Icon name={iconOf(taskKind(task))} />
              <span class="clip">{nameOf(task)}</span>
              <span class="muted">{task.status === 'queued' ? 'queued' : `${task.progress}%`}</span>
              <progress
                class="bar"
                max={100}
                {...(task.status === 'queued' ? {} : { value: task.progress })}
                aria-label={`Progress of ${nameOf(task)}`}
              />
            </button>
          </li>
        ))}
      </ul>
    </section>
  )
}
