/** The source of an operation: a file by drop, paste or picker, or a result; shown with what it is. */
import { useEffect, useRef, useState } from 'preact/hooks'
import { Problem } from '../api/client.ts'
import { Button } from '../components/button.tsx'
import { Icon } from '../components/icon.tsx'
import { Notice } from '../components/states.tsx'
import { upload, type Source } from './media-api.ts'
import { useRoom } from './room-state.ts'
import { Player } from './stage.tsx'
import { familyOf, lengthInWords } from './labels.ts'

const ACCEPTED = 'image/png,image/jpeg,image/webp,image/gif,image/tiff,image/bmp,video/*,audio/*'

type Uploading = { name: string; share: number; stop: () => void }

/** Uploads files one after the other and hands over each source. A new file or the end of the component stops what is under way. */
export function useUploads(add: (source: Source) => void): {
  uploading: Uploading | null
  problem: Error | null
  send: (files: Iterable<File>) => Promise<void>
} {
  const { plan } = useRoom()
  const [uploading, setUploading] = useState<Uploading | null>(null)
  const [problem, setProblem] = useState<Error | null>(null)
  const running = useRef<AbortController | null>(null)
  useEffect(() => () => running.current?.abort(), [])
  async function send(files: Iterable<File>): Promise<void> {
    running.current?.abort()
    const abort = new AbortController()
    running.current = abort
    setProblem(null)
    try {
      for (const file of files) {
        const show = (share: number) => setUploading({ name: file.name, share, stop: () => abort.abort() })
        show(0)
        add(await upload(plan, file, show, abort.signal))
      }
    } catch (error) {
      if (!abort.signal.aborted) setProblem(error as Error)
    }
    if (running.current === abort) setUploading(null)
  }
  return { uploading, problem, send }
}

/** `isShownBelow`: the fields of the operation show the source, so that its name is enough here. */
export function SourceInput({ isShownBelow }: { isShownBelow: boolean }) {
  const { state } = useRoom()
  const [source] = state.sources.value
  const { uploading, problem, send } = useUploads((added) => state.setSources([added]))
  return (
    <div class="stack">
      {source && <Chosen source={source} isShownBelow={isShownBelow} />}
      <div class="row">
        <DropZone send={send} isMany={false} action={source ? 'Choose another file' : 'Choose a file'} isSmall={source !== undefined} />
        {source && <Button text="Remove" look="small quiet" onClick={() => state.setSources([])} />}
        <Undo />
      </div>
      <UploadState uploading={uploading} problem={problem} />
    </div>
  )
}

export function UploadState({ uploading, problem }: { uploading: Uploading | null; problem: Error | null }) {
  return (
    <>
      {uploading && (
        <div class="uploading" role="status">
          <span class="clip">Uploading {uploading.name}</span>
          <Button text="Cancel" look="small quiet" onClick={uploading.stop} />
          <progress class="bar" max={1} value={uploading.share} aria-label={`Upload of ${uploading.name}`} />
        </div>
      )}
      {problem && (
        <div role="alert">
          <Notice tone="danger" title="The file was not accepted">
            {problem instanceof Problem ? problem.message : String(problem)}
          </Notice>
        </div>
      )}
    </>
  )
}

type ZoneProps = { send: (files: File[]) => Promise<void>; isMany: boolean; action: string; isSmall: boolean }

export function DropZone({ send, isMany, action, isSmall }: ZoneProps) {
  const [isOver, setOver] = useState(false)
  const picker = useRef<HTMLInputElement>(null)
  const take = (files: Iterable<File> | null | undefined) => {
    const list = [...(files ?? [])].slice(0, isMany ? 20 : 1)
    if (list.length > 0) void send(list)
  }
  const latest = useRef(take)
  latest.current = take
  useEffect(() => {
    const paste = (event: ClipboardEvent) => {
      if (!event.clipboardData?.files.length) return
      event.preventDefault()
      latest.current(event.clipboardData.files)
    }
    document.addEventListener('paste', paste)
    return () => document.removeEventListener('paste', paste)
  }, [])
  return (
    <div
      class={`drop ${isOver ? 'over' : ''} ${isSmall ? 'small' : ''}`}
      onDragOver={(event) => (event.preventDefault(), setOver(true))}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault()
        setOver(false)
        take(event.dataTransfer?.files)
      }}
    >
      {!isSmall && (
        <>
          <Icon name="upload" size={28} />
          <p>Drop an image, a video or an audio file here, or paste it.</p>
        </>
      )}
      <Button text={action} look="small" onClick={() => picker.current?.click()} />
      {!isSmall && <p class="hint">Up to 100 MiB, or take a result from the gallery.</p>}
      <input
        ref={picker}
        class="visually-hidden"
        type="file"
        tabIndex={-1}
        aria-label="File to upload"
        accept={ACCEPTED}
        multiple={isMany}
        onChange={(event) => {
          take(event.currentTarget.files)
          event.currentTarget.value = ''
        }}
      />
    </div>
  )
}

/** Brings back the sources that were replaced or removed last. */
export function Undo() {
  const { state } = useRoom()
  if (state.earlier.value.length === 0) return null
  return <Button text="Previous input" icon="back" look="small" onClick={state.undo} />
}

export function Chosen({ source, isShownBelow }: { source: Source; isShownBelow: boolean }) {
  const facts = [
    source.width !== null && source.height !== null && `${source.width} × ${source.height}`,
    source.durationMs !== null && lengthInWords(source.durationMs),
  ].filter(Boolean)
  return (
    <div class="source">
      {!isShownBelow && (
        <div class={source.isTransparent ? 'source-media checkered' : 'source-media'}>
          {familyOf(source.type) === 'image' ? (
            <img src={source.url} alt={`Source: ${source.name}`} />
          ) : (
            <Player url={source.url} type={source.type} name={`Source: ${source.name}`} />
          )}
        </div>
      )}
      <div class="source-text">
        <p class="clip source-name" tabIndex={-1} title={source.name}>
          <strong>{source.name}</strong>
        </p>
        <p class="muted">{facts.join(' · ')}</p>
      </div>
    </div>
  )
}
