/** Everything that was made and is still kept, the newest first. */
import { useEffect, useState } from 'preact/hooks'
import { outage } from '../api/client.ts'
import { downloadOf, isTransparent, KINDS, resultsOf, urlOf, taskKind, type Task } from '../api/tasks.ts'
import { Button } from '../components/button.tsx'
import { Card } from '../components/card.tsx'
import { Segmented } from '../components/field.tsx'
import { Icon } from '../components/icon.tsx'
import { Empty, Failed, Loading } from '../components/states.tsx'
import { Ago } from '../components/time.tsx'
import { label } from '../format.ts'
import { DeleteResult } from './delete-result.tsx'
import { readGallery, type GalleryPages, type Shown } from './gallery-pages.ts'
import { familyOf, nameOf } from './labels.ts'
import { sourceOf, thumbnailOf } from './media-api.ts'
import { inputAction, useAsInput, useRoom } from './room-state.ts'

const CHOICES = ['all', ...KINDS, 'edits'].map((value) => ({ value, name: label(value) }))

export function Gallery() {
  const { state } = useRoom()
  const [shown, setShown] = useState<Shown>('all')
  const [pages, setPages] = useState<GalleryPages | null>(null)
  const [error, setError] = useState<Error | null>(null)
  const [isBusy, setBusy] = useState(false)
  const ended = state.ended.value

  async function load(read: () => Promise<GalleryPages>): Promise<void> {
    setBusy(true)
    setError(null)
    try {
      setPages(await read())
    } catch (failure) {
      setError(failure as Error)
    }
    setBusy(false)
  }
  // Somebody may be looking at the older ones.
  const readAgain = () => load(() => readGallery(shown, pages?.shown.length ?? 0))
  useEffect(() => void readAgain(), [ended])
  useEffect(() => void (outage.value === null && error && readAgain()), [outage.value])

  return (
    <Card
      title="Gallery"
      hint="Results are kept for some days; download what you want to keep for longer."
      actions={
        <Segmented
          label="What the gallery shows"
          value={shown}
          choices={CHOICES}
          choose={(value) => {
            setShown(value as Shown)
            void load(() => readGallery(value as Shown, 0))
          }}
        />
      }
    >
      {error && <Failed error={error} retry={readAgain} />}
      {pages === null && !error && <Loading lines={4} />}
      {pages?.shown.length === 0 && (
        <Empty icon="image" title="Nothing here yet">
          What you make appears here, to look at, play, download and use again.
        </Empty>
      )}
      {pages !== null && pages.shown.length > 0 && (
        <ul class="gallery">
          {pages.shown.map((task) => (
            <GalleryItem key={task.id} task={task} name={nameOf(task, pages.shown)} />
          ))}
        </ul>
      )}
      {pages?.hasMore && <Button text="Show older" disabled={isBusy} onClick={() => void load(pages.next)} />}
    </Card>
  )
}

function GalleryItem({ task, name }: { task: Task; name: string }) {
  const room = useRoom()
  const { state } = room
  const { result } = task
  if (!result) return null
  const kind = label(taskKind(task))
  const images = resultsOf(task).length
  const source = sourceOf(task, result, name)
  const action = inputAction(room, source)
  const isCurrent = state.current.value?.id === task.id
  function show(): void {
    state.current.value = task
    document
      .querySelector('.room-stage')
      ?.scrollIntoView({ block: 'nearest', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' })
  }
  return (
    <li class={isCurrent ? 'gallery-item current' : 'gallery-item'}>
      <button type="button" class="gallery-show" onClick={show} aria-label={`Show ${name}${images > 1 ? `, 1 of ${images}` : ''}`}>
        <Thumbnail task={task} url={urlOf(result)} type={result.content_type} />
        {images > 1 && <span class="gallery-images">1 of {images}</span>}
      </button>
      <p class="clip" title={name}>
        {name}
      </p>
      <p class="muted gallery-facts">
        {!name.endsWith(kind) && `${kind} · `}
        <Ago at={task.created_at} />
      </p>
      <div class="row gallery-actions">
        <Button text={action} look="small" aria-label={`${action}: ${name}`} onClick={() => useAsInput(room, source)} />
        <a class="button small icon-only quiet" href={downloadOf(task, result)} download aria-label={`Download: ${name}`} title="Download">
          <Icon name="download" size={16} />
        </a>
        <DeleteResult task={task} name={name} />
      </div>
    </li>
  )
}

/** A picture of some kilobytes where the service makes one, else the file itself. */
function Thumbnail({ task, url, type }: { task: Task; url: string; type: string }) {
  const [isWhole, setWhole] = useState(false)
  const family = familyOf(type)
  if (family === 'image')
    return (
      <img
        class={isTransparent(task) ? 'checkered' : ''}
        src={isWhole ? url : thumbnailOf(task)}
        alt=""
        loading="lazy"
        decoding="async"
        onError={() => setWhole(true)}
      />
    )
  if (family === 'video') return <LazyVideo url={url} />
  return (
    <span class="gallery-sound">
      <Icon name="music" size={34} />
    </span>
  )
}

/** Loads the beginning of a video once it is near the visible part of the page, for a picture of it: Safari shows none without a time. */
function LazyVideo({ url }: { url: string }) {
  const [element, setElement] = useState<HTMLVideoElement | null>(null)
  const [isNear, setNear] = useState(false)
  useEffect(() => {
    if (!element) return undefined
    const observer = new IntersectionObserver(([entry]) => entry?.isIntersecting && setNear(true), { rootMargin: '200px' })
    observer.observe(element)
    return () => observer.disconnect()
  }, [element])
  return (
    <>
      <video
        ref={setElement}
        muted
        playsInline
        preload="metadata"
        tabIndex={-1}
        aria-hidden="true"
        {...(isNear ? { src: `${url}#t=0.1` } : {})}
      />
      <span class="gallery-play">
        <Icon name="play" size={22} />
      </span>
    </>
  )
}
