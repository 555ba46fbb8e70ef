/** The parameters of an operation: a brush, handles, and one control for each further field of its schema. */
import { useState } from 'preact/hooks'
import { InputField, Segmented, SelectField } from '../components/field.tsx'
import { Icon } from '../components/icon.tsx'
import { label } from '../format.ts'
import { MaskBrush } from './mask-brush.tsx'
import type { FieldSchema, Kind, Source } from './media-api.ts'
import { fieldsOf, has, isTooLarge, needs, type Edit } from './operation-body.ts'
import { PromptField } from './prompt-field.tsx'
import { TrimHandles } from './trim-handles.tsx'

type Props = { edit: Edit; set: (change: Partial<Edit>) => void; source: Source; kind: Kind }
/** Choices up to this many are shown side by side. */
const SEGMENTS_MAX = 5

export function OperationFields({ edit, set, source, kind }: Props) {
  const [isOpen, setOpen] = useState(false)
  const { usual, rare } = fieldsOf(kind)
  const control = ([name, schema]: [string, FieldSchema]) => (
    <Control
      key={`${kind.name} ${name}`}
      name={name}
      schema={name === 'output_format' ? { ...schema, enum: [...(kind.reads === 'video' ? [''] : []), ...(kind.formats ?? [])] } : schema}
      value={edit.values[name] ?? kind.values?.[name]}
      isRequired={needs(kind, name)}
      change={(value) => set({ values: { ...edit.values, [name]: value } })}
    />
  )
  return (
    <>
      {has(kind, 'mask_url') && <Mask key={`${kind.name} ${source.url}`} {...{ edit, set, source, kind }} />}
      {has(kind, 'start_time') && <TrimHandles key={source.url} {...{ edit, set, source }} />}
      {usual.map(control)}
      {has(kind, 'scale') && <Enlarged {...{ edit, source, kind }} />}
      {rare.length > 0 && (
        <>
          <button type="button" class="more room-more" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
            <Icon name="chevron" size={16} /> More settings
          </button>
          {isOpen && <div class="grid two">{rare.map(control)}</div>}
        </>
      )}
    </>
  )
}

/** A mask that the operation can do without is offered, and not shown. */
function Mask({ edit: { strokes }, set, source, kind }: Props) {
  const isNeeded = needs(kind, 'mask_url')
  const [isOpen, setOpen] = useState(isNeeded || strokes.length > 0)
  function choose(isChosen: boolean): void {
    setOpen(isChosen)
    if (!isChosen) set({ strokes: [], mask: null })
  }
  return (
    <>
      {!isNeeded && <Check name="Only a part of the image" isChecked={isOpen} change={choose} />}
      {isOpen && <MaskBrush source={source} strokes={strokes} set={set} />}
    </>
  )
}

function Enlarged({ edit, source, kind }: Omit<Props, 'set'>) {
  const { width, height } = source
  if (width === null || height === null) return null
  const scale = Number(edit.values['scale'] ?? kind.values?.['scale'] ?? 1)
  return (
    <p class="hint">
      {width} × {height} becomes {width * scale} × {height * scale}
      {isTooLarge(kind, edit, source) && `: more than the largest result, which has ${kind.max?.megapixels} megapixels`}
    </p>
  )
}

type ControlProps = { name: string; schema: FieldSchema; value: unknown; isRequired: boolean; change: (value: unknown) => void }

/** The control that fits the schema of a field. */
export function Control({ name, schema, value, isRequired, change }: ControlProps) {
  const title = label(name)
  if (name === 'background') return <Background value={String(value)} change={change} />
  if (schema.type === 'boolean') return <Check name={title} isChecked={value === true} change={change} />
  if (schema.enum) return <Choice {...{ title, schema, value, change }} />
  if (schema.type === 'string' && schema.pattern === undefined)
    return (
      <PromptField label={title} hint={schema.description} rows={2} value={String(value ?? '')} change={change} isRequired={isRequired} />
    )
  if (schema.type === 'number' || schema.type === 'integer') return <NumberField {...{ title, schema, value, change }} />
  return (
    <InputField
      label={title}
      hint={schema.description}
      value={String(value ?? '')}
      onInput={({ currentTarget }) => change(currentTarget.value === '' ? undefined : currentTarget.value)}
    />
  )
}

type Titled = Pick<ControlProps, 'schema' | 'value' | 'change'> & { title: string }

function NumberField({ title, schema, value, change }: Titled) {
  return (
    <InputField
      label={title}
      hint={schema.description}
      type="number"
      min={schema.minimum}
      max={schema.maximum}
      step={schema.type === 'integer' ? 1 : 0.05}
      value={String(value ?? '')}
      onInput={({ currentTarget }) => change(currentTarget.value === '' ? undefined : Number(currentTarget.value))}
    />
  )
}

function Choice({ title, schema, value, change }: Titled) {
  const options = schema.enum ?? []
  const choices = options.map((option) => ({ value: String(option), name: option === '' ? 'Automatic' : label(String(option)) }))
  const choose = (chosen: string) => change(options.find((option) => String(option) === chosen))
  const chosen = String(value ?? options[0])
  if (choices.length > SEGMENTS_MAX) return <SelectField label={title} value={chosen} choices={choices} choose={choose} />
  return (
    <div class="field">
      <span class="field-label">{title}</span>
      <Segmented label={title} value={chosen} choices={choices} choose={choose} />
    </div>
  )
}

function Check({ name, isChecked, change }: { name: string; isChecked: boolean; change: (isChecked: boolean) => void }) {
  return (
    <label class="check">
      <input type="checkbox" checked={isChecked} onChange={(event) => change(event.currentTarget.checked)} /> {name}
    </label>
  )
}

const GROUNDS = [
  { value: 'transparent', name: 'None' },
  { value: '#ffffff', name: 'White' },
  { value: '#000000', name: 'Black' },
  { value: 'colour', name: 'Colour' },
]
const FIRST_COLOUR = '#57d3b8'

function Background({ value, change }: { value: string; change: (value: string) => void }) {
  const isOwn = !GROUNDS.some((ground) => ground.value === value)
  return (
    <div class="field">
      <span class="field-label">Background</span>
      <div class="row">
        <Segmented
          label="Background"
          value={isOwn ? 'colour' : value}
          choices={GROUNDS}
          choose={(chosen) => change(chosen === 'colour' ? FIRST_COLOUR : chosen)}
        />
        {isOwn && (
          <input
            type="color"
            class="swatch"
            aria-label="Colour of the background"
            value={value}
            onInput={(event) => change(event.currentTarget.value)}
          />
        )}
      </div>
    </div>
  )
}
