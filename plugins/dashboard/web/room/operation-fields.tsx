/** The parameters of each operation. */
import { Field, Segmented } from '../components/field.tsx'
import type { Kind, Source } from './media-api.ts'
import { MaskBrush } from './mask-brush.tsx'
import { isTooLarge, type Edit } from './operation-body.ts'
import { TrimHandles } from './trim-handles.tsx'

type Props = { edit: Edit; set: (change: Partial<Edit>) => void; source: Source; kind: Kind | null }

export function OperationFields(props: Props) {
  switch (props.edit.operation) {
    case 'background_remove':
      return <Background {...props} />
    case 'upscale':
      return <Scale {...props} />
    case 'inpaint':
      return (
        <>
          <MaskBrush key={props.source.url} source={props.source} changed={(mask) => props.set({ mask })} />
          <Prompt {...props} label="What should be there" placeholder="A bench under a tree" />
        </>
      )
    case 'ai_edit':
      return (
        <>
          <Prompt {...props} label="What to change" placeholder="Make it a rainy night" />
          <Strength {...props} />
        </>
      )
    case 'trim':
      return <TrimHandles key={props.source.url} {...props} />
    case 'merge':
      return <Merge {...props} />
    default:
      return null
  }
}

function Prompt({ edit, set, label, placeholder }: Props & { label: string; placeholder: string }) {
  return (
    <Field label={label}>
      {(wired) => (
        <textarea
          {...wired}
          class="input"
          rows={2}
          maxLength={8000}
          placeholder={placeholder}
          value={edit.prompt}
          onInput={(event) => set({ prompt: event.currentTarget.value })}
        />
      )}
    </Field>
  )
}

const GROUNDS = [
  { value: 'transparent', name: 'Transparent' },
  { value: '#ffffff', name: 'White' },
  { value: '#000000', name: 'Black' },
  { value: 'colour', name: 'Colour' },
]
const FIRST_COLOUR = '#57d3b8'

function Background({ edit, set }: Props) {
  const isOwn = !GROUNDS.some(({ value }) => value === edit.background)
  return (
    <>
      <div class="field">
        <span class="field-label">Background</span>
        <div class="row">
          <Segmented
            label="Background"
            value={isOwn ? 'colour' : edit.background}
            choices={GROUNDS}
            choose={(value) => set({ background: value === 'colour' ? FIRST_COLOUR : value })}
          />
          {isOwn && (
            <input
              type="color"
              class="swatch"
              aria-label="Colour of the background"
              value={edit.background}
              onInput={(event) => set({ background: event.currentTarget.value })}
            />
          )}
        </div>
      </div>
      <label class="check">
        <input type="checkbox" checked={edit.crop} onChange={(event) => set({ crop: event.currentTarget.checked })} /> Crop to the subject
      </label>
    </>
  )
}

function Scale({ edit, set, source, kind }: Props) {
  const { width, height } = source
  return (
    <div class="field">
      <span class="field-label">Factor</span>
      <Segmented
        label="Factor"
        value={String(edit.scale)}
        choices={['2', '3', '4'].map((value) => ({ value, name: `${value}×` }))}
        choose={(value) => set({ scale: Number(value) })}
      />
      {width !== null && height !== null && (
        <p class="hint">
          {width} × {height} becomes {width * edit.scale} × {height * edit.scale}
          {isTooLarge(edit, source, kind) && `: more than the largest result, which has ${kind?.max?.megapixels} megapixels`}
        </p>
      )}
    </div>
  )
}

const STRENGTHS = [
  { value: '', name: 'Automatic' },
  { value: '0.3', name: 'A little' },
  { value: '0.6', name: 'Clearly' },
  { value: '0.9', name: 'A lot' },
]

function Strength({ edit, set }: Props) {
  return (
    <div class="field">
      <span class="field-label">How much may change</span>
      <Segmented
        label="How much may change"
        value={edit.strength === null ? '' : String(edit.strength)}
        choices={STRENGTHS}
        choose={(value) => set({ strength: value === '' ? null : Number(value) })}
      />
    </div>
  )
}

function Merge({ edit, set }: Props) {
  return (
    <>
      <label class="check">
        <input type="checkbox" checked={edit.isFading} onChange={(event) => set({ isFading: event.currentTarget.checked })} /> Fade from one
        to the next
      </label>
      <div class="field">
        <span class="field-label">Other aspect ratios</span>
        <Segmented
          label="Other aspect ratios"
          value={edit.fit}
          choices={[
            { value: 'contain', name: 'Add bars' },
            { value: 'cover', name: 'Crop' },
          ]}
          choose={(fit) => set({ fit: fit as Edit['fit'] })}
        />
      </div>
    </>
  )
}
