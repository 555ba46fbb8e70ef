/** The task that was started or chosen last: its progress, why it failed, or what it made. */
import { useState } from 'preact/hooks'
import { cancelTask, downloadOf, isFinal, isTransparent, resultsOf, taskKind, urlOf, type Task } from '../api/tasks.ts'
import { Button } from '../components/button.tsx'
import { CopyButton } from '../components/copy.tsx'
import { Dialog } from '../components/dialog.tsx'
import { Icon } from '../components/icon.tsx'
import { Empty, Notice } from '../components/states.tsx'
import { toastError } from '../components/toasts.tsx'
import { bytes, day, label, money } from '../format.ts'
import { hrefOf } from '../router.ts'
import { Compare } from './compare.tsx'
import { Ideas } from './ideas.tsx'
import { adviceOf, familyOf, iconOf, lengthInWords, nameOf } from './labels.ts'
import { sourceOf } from './media-api.ts'
import { EMPTY_DRAFT, inputAction, useAsInput, useRoom } from './room-state.ts'

export function Stage() {
  const { state } = useRoom()
  const task = state.current.value
  return (
    <section class="card room-stage" aria-label="Result" aria-live="polite" aria-busy={task !== null && !isFinal(task)}>
      {task === null ? <Ideas /> : <Shown key={task.id} task={task} />}
    </section>
  )
}

function Shown({ task }: { task: Task }) {
  if (!isFinal(task)) return <UnderWay task={task} />
  if (task.status === 'completed' && task.result) return <Finished task={task} />
  return <Ended task={task} />
}

function UnderWay({ task }: { task: Task }) {
  const { state } = useRoom()
  const [isCanceling, setCanceling] = useState(false)
  const kind = taskKind(task)
  const isQueued = task.status === 'queued'
  const where = isQueued
    ? task.queue_position === null || task.queue_position <= 1
      ? 'Next in the queue'
      : `Number ${task.queue_position} in the queue`
    : 'Processing'
  async function cancel(): Promise<void> {
    setCanceling(true)
    await cancelTask(task).then((canceled) => (state.current.value = canceled), toastError)
    setCanceling(false)
  }
  return (
    <div class="underway">
      <div class="orb" aria-hidden="true">
        <Icon name={iconOf(kind)} size={34} />
      </div>
      <h2>{label(kind)}</h2>
      <p class="muted clip-3 break">{nameOf(task)}</p>
      <progress class="bar" max={100} {...(isQueued ? {} : { value: task.progress })} aria-label={`Progress of ${label(kind)}`} />
      <p>
        {where}
        {!isQueued && task.progress > 0 && <> · {task.progress}%</>} <span class="muted">· {money(task.estimated_cost)} held</span>
      </p>
      <Button text="Cancel" icon="close" disabled={isCanceling} onClick={() => void cancel()} />
    </div>
  )
}

function Ended({ task }: { task: Task }) {
  const { state } = useRoom()
  const isCanceled = task.status === 'canceled'
  return (
    <div class="stack room-ended">
      <Empty icon={isCanceled ? 'close' : 'warning'} title={isCanceled ? 'Canceled' : 'This was not made'}>
        <span class="clip-3 break">{nameOf(task)}</span>
      </Empty>
      <Notice tone={isCanceled ? 'info' : 'danger'} title={isCanceled ? 'You canceled it.' : (task.error?.message ?? 'It failed.')}>
        {!isCanceled && task.error && <>{adviceOf(task.error.code)} </>}
        Nothing was charged
        {task.refund_amount && Number(task.refund_amount) > 0 ? `: ${money(task.refund_amount)} went back to your allowance` : ''}.
      </Notice>
      <div class="row">
        {task.object === 'generation' && <ReusePrompt task={task} />}
        <a class="button quiet" href={hrefOf(`/tasks/${task.id}?object=${task.object}`)}>
          Details
        </a>
        <Button text="Close" look="quiet" onClick={() => (state.current.value = null)} />
      </div>
    </div>
  )
}

function Finished({ task }: { task: Task }) {
  const room = useRoom()
  const [chosen, choose] = useState(0)
  const all = resultsOf(task)
  const result = all[chosen]
  if (!result) return null
  const source = sourceOf(task, result, nameOf(task))
  const url = urlOf(result)
  const before = beforeOf(task)
  const facts = [
    result.width !== null && result.height !== null && `${result.width} × ${result.height}`,
    result.duration_ms !== null && lengthInWords(result.duration_ms),
    bytes(result.bytes),
    task.actual_cost !== null && `${money(task.actual_cost)} charged`,
    `kept until ${day(result.expires_at)}`,
  ].filter(Boolean)
  return (
    <div class="stack">
      {before !== null ? (
        <Compare before={before} after={url} name={nameOf(task)} isTransparent={isTransparent(task)} />
      ) : (
        <Player url={url} type={result.content_type} name={nameOf(task)} isTransparent={isTransparent(task)} />
      )}
      {all.length > 1 && (
        <div class="row room-results" role="group" aria-label="Results">
          {all.map((one, at) => (
            <button
              key={at}
              type="button"
              aria-pressed={at === chosen}
              aria-label={`Result ${at + 1} of ${all.length}`}
              onClick={() => choose(at)}
            >
              <img src={urlOf(one)} alt="" decoding="async" />
            </button>
          ))}
        </div>
      )}
      <div>
        <h2 class="clip-3 break">{nameOf(task)}</h2>
        <p class="muted">{facts.join(' · ')}</p>
      </div>
      <div class="row">
        <a class="button primary" href={downloadOf(task, result)} download>
          <Icon name="download" size={18} /> Download
        </a>
        <Button text={inputAction(room, source)} icon="spark" onClick={() => useAsInput(room, source)} />
        {task.object === 'generation' && <ReusePrompt task={task} />}
        {familyOf(result.content_type) === 'image' && <Zoom url={url} name={nameOf(task)} />}
        <CopyButton text={url} label="Copy link" isSmall={false} />
        <a class="button quiet" href={hrefOf(`/tasks/${task.id}?object=${task.object}`)}>
          Details
        </a>
      </div>
    </div>
  )
}

/** The source of an operation on a picture, for the slider; null where there is nothing to compare. */
function beforeOf({ object, input, result }: Task): string | null {
  const url = input?.['media_url']
  return object === 'operation' && typeof url === 'string' && result !== null && familyOf(result.content_type) === 'image' ? url : null
}

function ReusePrompt({ task }: { task: Task }) {
  const { state } = useRoom()
  function reuse(): void {
    state.draft.value = state.made.get(task.id) ?? { ...EMPTY_DRAFT, kind: task.kind ?? 'image', prompt: task.prompt ?? '' }
    state.mode.value = 'make'
    requestAnimationFrame(() => document.querySelector<HTMLElement>('.room-prompt')?.focus())
  }
  return <Button text="Reuse prompt" icon="refresh" onClick={reuse} />
}

/** The picture pixel by pixel, to move around in. */
function Zoom({ url, name }: { url: string; name: string }) {
  const [isOpen, setOpen] = useState(false)
  return (
    <>
      <Button text="Zoom" icon="eye" onClick={() => setOpen(true)} />
      {isOpen && (
        <Dialog title={name} close={() => setOpen(false)} wide>
          <div class="zoom" tabIndex={0} role="region" aria-label="Picture at full size">
            <img src={url} alt={name} />
          </div>
        </Dialog>
      )}
    </>
  )
}

type PlayerProps = { url: string; type: string; name: string; isTransparent?: boolean }

export function Player({ url, type, name, isTransparent: hasGround = false }: PlayerProps) {
  const family = familyOf(type)
  return (
    <div class={`room-media ${family} ${hasGround ? 'checkered' : ''}`}>
      {family === 'image' && <img src={url} alt={name} decoding="async" />}
      {family === 'video' && <video src={url} controls loop playsInline preload="metadata" aria-label={name} />}
      {family === 'audio' && (
        <>
          <span class="sound" aria-hidden="true">
            <Icon name="music" size={40} />
          </span>
          <audio src={url} controls preload="metadata" aria-label={name} />
        </>
      )}
    </div>
  )
}
