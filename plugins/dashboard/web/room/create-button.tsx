import { useRef, useState } from 'preact/hooks'
import { Problem } from '../api/client.ts'
import { Button } from '../components/button.tsx'
import { Notice } from '../components/states.tsx'
import { createTask, randomKey, type Body } from './media-api.ts'
import { sentenceOf, type Quoted } from './price.tsx'
import { useRoom } from './room-state.ts'

/** Creates the task of a body. After a lost answer the same key is sent again, so that nothing is made or paid twice. */
export function CreateButton({ body, quoted, name }: { body: Body | null; quoted: Quoted; name: string }) {
  const { state, plan, reloadPlans } = useRoom()
  const [isBusy, setBusy] = useState(false)
  const [problem, setProblem] = useState<Problem | null>(null)
  const attempt = useRef<{ text: string; key: string } | null>(null)
  const isUnaffordable = quoted.state === 'quoted' && !quoted.quote.affordable
  async function create(): Promise<void> {
    if (body === null || isBusy) return
    const text = JSON.stringify(body)
    if (attempt.current?.text !== text) attempt.current = { text, key: randomKey() }
    setBusy(true)
    setProblem(null)
    try {
      const task = await createTask(plan, body, attempt.current.key)
      attempt.current = null
      if (task.object === 'generation') state.made.set(task.id, state.draft.value)
      state.current.value = task
      state.start(task)
      // On a phone the result is below the form.
      document.querySelector('.room-stage')?.scrollIntoView({ block: 'nearest' })
      reloadPlans()
    } catch (error) {
      // A refusal is final: the next press is a new request.
      if (error instanceof Problem && error.status > 0 && error.status < 500) attempt.current = null
      setProblem(error instanceof Problem ? error : new Problem(0, 'internal', String(error)))
    }
    setBusy(false)
  }
  return (
    <>
      <Button
        text={isBusy ? 'One moment …' : name}
        icon="spark"

        look="primary large create"
        disabled={body === null || isUnaffordable || quoted.state === 'refused'}
        aria-disabled={isBusy}
        onClick={() => void create()}
      />
      {problem && (
        <div role="alert" class="room-problem">
          <Notice tone="danger">{sentenceOf(problem)}</Notice>
        </div>
      )}
    </>
  )
}
