import { useState } from 'preact/hooks'
import { deleteResult, resultsOf, type Task } from '../api/tasks.ts'
import { Dialog, DialogActions } from '../components/dialog.tsx'
import { Icon } from '../components/icon.tsx'
import { toast } from '../components/toasts.tsx'
import { useRoom } from './room-state.ts'

/** Deletes the files of a task, once the person has confirmed it. */
export function DeleteResult({ task, name }: { task: Task; name: string }) {
  const { state } = useRoom()
  const [isAsked, setAsked] = useState(false)
  const [error, setError] = useState<Error | null>(null)
  const images = resultsOf(task).length
  async function submit(): Promise<void> {
    try {
      await deleteResult(task.id)
    } catch (failure) {
      return setError(failure as Error)
    }
    setAsked(false)
    toast('The result is deleted.')
    if (state.current.value?.id === task.id) state.current.value = null
    state.ended.value++
  }
  return (
    <>
      <button
        type="button"
        class="button small icon-only quiet"
        aria-label={`Delete: ${name}`}
        title="Delete"
        onClick={() => setAsked(true)}
      >
        <Icon name="trash" size={16} />
      </button>
      {isAsked && (
        <Dialog title="Delete this result?" close={() => setAsked(false)}>
          <form class="form" onSubmit={(event) => (event.preventDefault(), void submit())}>
            <p class="clip-3 break">{name}</p>
            <p>
              {images > 1
                ? `All ${images} images of this task are removed now, and every link to them stops working.`
                : 'Its file is removed now, and every link to it stops working.'}{' '}
              The task and its cost stay in the list of tasks.
            </p>
            <DialogActions action="Delete" tone="danger" isDisabled={false} error={error} close={() => setAsked(false)} />
          </form>
        </Dialog>
      )}
    </>
  )
}
