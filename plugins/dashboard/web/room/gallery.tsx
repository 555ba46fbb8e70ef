/** Everything that was made and is still kept, the newest first. */
import { useEffect, useState } from 'preact/hooks'
import { downloadOf, urlOf, taskKind, type Task } from '../api/tasks.ts'
import { Card } from '../components/card.tsx'
import { Icon } from '../components/icon.tsx'
import { Empty, Failed, Loading } from '../components/states.tsx'
import { Ago } from '../components/time.tsx'
import { readGallery, type GalleryPages } from './gallery-pages.ts'
import { sourceOf } from './media-api.ts'
import { useRoom } from './room-state.ts'
import { familyOf, nameOf, wordsOf } from './labels.ts'

export function Gallery() {
  const { state } = useRoom()
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
  const readAgain = () => load(() => readGallery(pages?.shown.length ?? 0))
  useEffect(() => void readAgain(), [ended])

  return (
    <Card title="Gallery" hint="Results are kept for some days; download what you want to keep for longer.">
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
            <GalleryItem key={task.id} task={task} />
          ))}
        </ul>
      )}
      {pages?.hasMore && (
        <button type="button" class="button" disabled={isBusy} onClick={() => void load(pages.next)}>
          Show older
        </button>
      )}
    </Card>
  )
}

function GalleryItem({ task }: { task: Task }) {
  const { state } = useRoom()
  const { result } = task
  if (!result) return null
  const name = nameOf(task)
  const kind = wordsOf(taskKind(task)).name
  const isMerging =
    state.mode.value === 'edit' &&
    state.sources.value.length > 0 &&
    [result.content_type, ...state.sources.value.map(({ type }) => type)].every((type) => familyOf(type) !== 'image')
  function show(): void {
    state.current.value = task
    document
      .querySelector('.room-stage')
      ?.scrollIntoView({ block: 'nearest', behavior: matchMedia('(prefers-reduced-motion: reduce)').matches ? 'auto' : 'smooth' })
  }
  return (
    <li class="gallery-item">
      <button type="button" class="gallery-show" onClick={show} aria-label={`Show ${name}`}>
        <Thumbnail url={urlOf(result)} type={result.content_type} />
      </button>
      <a
        class="button small icon-only gallery-save"
        href={downloadOf(task, result)}
        download
        aria-label={`Download: ${name}`}
        title="Download"
      >
        <Icon name="download" size={16} />
      </a>
      <p class="clip" title={name}>
        {name}
      </p>
      <p class="muted gallery-facts">
        {name !== kind && `${kind} · `}
        <Ago at={task.created_at} />
      </p>
      <div class="row">
        <button
          type="button"
          class="button small"
          aria-label={`Use as input: ${name}`}
          onClick={() => state.useAsInput(sourceOf(result, name))}
        >
          Use as input
        </button>
        {isMerging && (
          <button
            type="button"
            class="button small quiet"
            aria-label={`Add to the merge: ${name}`}
            onClick={() => (state.sources.value = [...state.sources.value, sourceOf(result, name)])}
          >
            <Icon name="plus" size={16} /> Add
          </button>
        )}
      </div>
    </li>
  )
}

function Thumbnail({ url, type }: { url: string; type: string }) {
  const family = familyOf(type)
  if (family === 'image') return <img class="checkered" src={url} alt="" loading="lazy" decoding="async" />
  if (family === 'video') return <LazyVideo url={url} />
  return (
    <span class="gallery-sound">
      <Icon name="music" size={34} />
    </span>
  )
}

/** Loads the first picture of a film once it is near the visible part of the page. */
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
      <video ref={setElement} muted playsInline preload="metadata" tabIndex={-1} aria-hidden="true" {...(isNear ? { src: url } : {})} />
      <span class="gallery-play">
        <Icon name="play" size={22} />
      </span>
    </>
  )
}
