import { useState } from 'preact/hooks'
import { deleteResult, resultsOf, type Task } from '../api/tasks.ts'
import { Button } from '../components/button.tsx'
import { FormDialog } from '../components/dialog.tsx'
import { toast } from '../components/toasts.tsx'
import { useRoom } from './room-state.ts'

/** Deletes the files of a task, once the person has confirmed it. */
export function DeleteResult({ task, name }: { task: Task; name: string }) {
  const { state } = useRoom()
  const [isAsked, setAsked] = useState(false)
  const images = resultsOf(task).length
  async function submit(): Promise<void> {
    await deleteResult(task.id)
    setAsked(false)
    toast('The result is deleted.')
    if (state.current.value?.id === task.id) state.current.value = null
    state.ended.value++
  }
  return (
    <>
      <Button
        icon="trash"

        look="small icon-only quiet"
        aria-label={`Delete: ${name}`}
        title="Delete"
        onClick={() => setAsked(true)}
      />
      {isAsked && (
        <FormDialog title="Delete this result?" action="Delete" tone="danger" close={() => setAsked(false)} submit={submit}>
          <p class="clip-3 break">{name}</p>
          <p>
            {images > 1
              ? `All ${images} images of this task are removed now, and every link to them stops working.`
              : 'Its file is removed now, and every link to it stops working.'}{' '}
            The task and its cost stay in the list of tasks.
          </p>
        </FormDialog>
      )}
    </>
  )
}
