/** The sources of a merge in their order. */
import { Button } from '../components/button.tsx'
import { Icon } from '../components/icon.tsx'
import { useRoom } from './room-state.ts'
import { DropZone, Undo, UploadState, useUploads } from './source-input.tsx'
import { familyOf, lengthInWords } from './labels.ts'

export function SourceList() {
  const { state } = useRoom()
  const sources = state.sources.value
  const { uploading, problem, send } = useUploads((added) => state.setSources([...state.sources.value, added]))

  function move(from: number, to: number): void {
    const next = [...sources]
    const [moved] = next.splice(from, 1)
    if (!moved) return
    next.splice(to, 0, moved)
    state.setSources(next)
  }

  return (
    <div class="stack">
      <ol class="merge-list">
        {sources.map(({ url, name, type, durationMs }, at) => (
          <li key={`${url} ${at}`}>
            <Icon name={familyOf(type) === 'video' ? 'video' : 'music'} />
            <span class="clip source-name" tabIndex={-1} title={name}>
              {at + 1}. {name}
            </span>
            {durationMs !== null && <span class="muted">{lengthInWords(durationMs)}</span>}
            <span class="row">
              <Button
                text="↑"

                look="small quiet"
                aria-label={`Move ${name} up`}
                disabled={at === 0}
                onClick={() => move(at, at - 1)}
              />
              <Button
                text="↓"

                look="small quiet"
                aria-label={`Move ${name} down`}
                disabled={at === sources.length - 1}
                onClick={() => move(at, at + 1)}
              />
              <Button
                icon="close"

                look="small quiet"
                aria-label={`Remove ${name}`}
                onClick={() => state.setSources(sources.filter((_, other) => other !== at))}
              />
            </span>
          </li>
        ))}
      </ol>
      <p class="hint">Add results from the gallery, or your own files.</p>
      <div class="row">
        <DropZone send={send} isMany action="Add files" isSmall />
        <Undo />
      </div>
      <UploadState uploading={uploading} problem={problem} />
    </div>
  )
}
