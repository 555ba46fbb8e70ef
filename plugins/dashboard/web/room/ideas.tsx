/** What the stage shows before anything was made: what to do, and prompts to begin with. */
import { Button } from '../components/button.tsx'
import { Empty } from '../components/states.tsx'
import { useRoom } from './room-state.ts'

export const IDEAS: Record<string, string[]> = {
  image: ['A lighthouse by the sea at dawn', 'A red balloon over snowy mountains', 'A quiet forest lake under the moon'],
  video: ['Waves under a full moon', 'A train through autumn hills', 'Snow over a small town'],
  music: ['A calm piano melody for reading', 'An upbeat theme for a product video', 'Slow strings at night'],
}

export function Ideas() {
  const { state } = useRoom()
  const { value: draft } = state.draft
  if (state.mode.value === 'edit') {
    return (
      <Empty icon="spark" title="Your result appears here">
        Choose a source and an operation, and press Run. You see the price before anything is spent, and the source stays as it is.
      </Empty>
    )
  }
  return (
    <Empty icon="spark" title="Your result appears here">
      <p>Write a prompt and press Create. You see the price before anything is spent. Or begin with one of these:</p>
      <ul class="ideas" aria-label="Ideas">
        {(IDEAS[draft.kind] ?? []).map((idea) => (
          <li key={idea}>
            <Button
              text={idea}

              look="small quiet"
              onClick={() => {
                state.draft.value = { ...draft, prompt: idea }
                document.querySelector<HTMLElement>('.room-prompt')?.focus()
              }}
            />
          </li>
        ))}
      </ul>
    </Empty>
  )
}
