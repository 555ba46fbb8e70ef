/** The picture that a video begins with: a result of the gallery, a file of the person, or an address. */
import { Problem } from '../api/client.ts'
import { Field } from '../components/field.tsx'
import { label } from '../format.ts'
import { familyOf } from './labels.ts'
import type { Source } from './media-api.ts'
import { Chosen, DropZone, UploadState, useUploads } from './source-input.tsx'

/** What is known of a picture by its address alone. */
const UNKNOWN = { type: '', width: null, height: null, durationMs: null }

export function FirstFrame({ frame, choose }: { frame: Source | null; choose: (frame: Source | null) => void }) {
  const { uploading, problem, send } = useUploads((added) => {
    if (familyOf(added.type) !== 'image') throw new Problem(415, 'unsupported_media_type', 'A video begins with an image.')
    choose(added)
  })
  return (
    <div class="stack">
      {frame !== null && frame.type !== '' ? (
        <div class="field">
          <span class="field-label">{label('image_url')}</span>
          <Chosen source={frame} isShownBelow={false} />
        </div>
      ) : (
        <Field label={`${label('image_url')} (optional)`} hint="An image from the gallery, a file, or an address.">
          {(wired) => (
            <input
              {...wired}
              class="input"
              inputMode="url"
              value={frame?.url ?? ''}
              onInput={({ currentTarget: { value: url } }) => choose(url === '' ? null : { ...UNKNOWN, url, name: url })}
            />
          )}
        </Field>
      )}
      <div class="row">
        <DropZone send={send} isMany={false} action={frame === null ? 'Choose a file' : 'Choose another file'} isSmall />
        {frame !== null && (
          <button type="button" class="button small quiet" onClick={() => choose(null)}>
            Remove
          </button>
        )}
      </div>
      <UploadState uploading={uploading} problem={problem} />
    </div>
  )
}
