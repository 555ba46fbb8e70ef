/** The picture that a video begins with: a result of the gallery, a file of the person, or an address. */
import { Problem } from '../api/client.ts'
import { Button } from '../components/button.tsx'
import { InputField } from '../components/field.tsx'
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
        <InputField
          label={`${label('image_url')} (optional)`}
          hint="An image from the gallery, a file, or an address."
          inputMode="url"
          value={frame?.url ?? ''}
          onInput={({ currentTarget: { value: url } }) => choose(url === '' ? null : { ...UNKNOWN, url, name: url })}
        />
      )}
      <div class="row">
        <DropZone send={send} isMany={false} action={frame === null ? 'Choose a file' : 'Choose another file'} isSmall />
        {frame !== null && <Button text="Remove" look="small quiet" onClick={() => choose(null)} />}
      </div>
      <UploadState uploading={uploading} problem={problem} />
    </div>
  )
}
