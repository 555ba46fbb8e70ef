/** The form of a generation: kind, prompt and parameters, the price, and the button that spends it. */
import { useEffect, useState } from 'preact/hooks'
import { Field, InputField, Segmented, SelectField } from '../components/field.tsx'
import { Icon } from '../components/icon.tsx'
import { CreateButton } from './create-button.tsx'
import { FirstFrame } from './first-frame.tsx'
import { IDEAS } from './ideas.tsx'
import { KindChoice } from './kind-choice.tsx'
import type { Body, Kind } from './media-api.ts'
import { Control } from './operation-fields.tsx'
import { PriceLine, useQuote } from './price.tsx'
import { promptFault } from './prompt-fault.ts'
import { PromptField } from './prompt-field.tsx'
import { RequestCode } from './request-code.tsx'
import { kindOf, useRoom, type Draft } from './room-state.ts'

const RATIOS: Record<string, string[]> = { image: ['1:1', '4:3', '3:4', '16:9', '9:16'], video: ['16:9', '1:1', '9:16'] }
/** The request of a draft, with those options that its kind takes now. */
function bodyOf({ kind, prompt, ratio, seconds, seed, format, options, frame }: Draft, { fields = {} }: Pick<Kind, 'fields'>): Body {
  return {
    kind,
    prompt: prompt.trim(),
    ...(ratio !== '' && kind !== 'music' ? { aspect_ratio: ratio } : {}),
    ...(seconds !== null && kind !== 'image' ? { duration_seconds: seconds } : {}),
    ...(seed !== '' ? { seed: Number(seed) } : {}),
    ...(format !== '' ? { output_format: format } : {}),
    ...Object.fromEntries(Object.entries(trimmed(options)).filter(([name, value]) => name in fields && isSet(value))),
    ...(frame !== null && 'image_url' in fields ? { image_url: frame.url.trim() } : {}),
  }
}

/** Whether each text of a body fits its field. */
const fits = (body: Body, { fields = {} }: Kind): boolean =>
  Object.entries(body).every(([name, value]) => typeof value !== 'string' || value.length <= (fields[name]?.maxLength ?? Infinity))

const trimmed = (options: Draft['options']): Draft['options'] =>
  Object.fromEntries(Object.entries(options).map(([name, value]) => [name, typeof value === 'string' ? value.trim() : value]))

const isSet = (value: unknown): boolean => value !== undefined && value !== ''

export function Composer() {
  const room = useRoom()
  const { state, kinds } = room
  const draft = state.draft.value
  const kind = kindOf(room, draft.kind)
  const set = (change: Partial<Draft>) => (state.draft.value = { ...draft, ...change })
  const asked = bodyOf(draft, kind ?? {})
  const body = kind?.available && asked['prompt'] !== '' && promptFault(draft.prompt) === null && fits(asked, kind) ? asked : null
  const quoted = useQuote(body)
  return (
    <form
      class="form"
      onSubmit={(event) => event.preventDefault()}
      onKeyDown={(event) => {
        if (event.key === 'Enter' && (event.ctrlKey || event.metaKey))
          event.currentTarget.querySelector<HTMLButtonElement>('.create')?.click()
      }}
    >
      <KindChoice
        label="What to make"
        kinds={kinds.data.filter(({ object }) => object === 'generation')}
        value={draft.kind}
        choose={(kind) => set({ kind, ratio: '', seconds: null, format: '', options: {} })}
      />
      <PromptField
        label="Prompt"
        rows={3}
        placeholder={`${IDEAS[draft.kind]?.[0] ?? ''} …`}
        value={draft.prompt}
        change={(prompt) => set({ prompt })}
        isRequired
      />
      {kind?.available && <Parameters kind={kind} draft={draft} set={set} />}
      <div class="room-spend">
        <PriceLine of={quoted} hint="The price appears here." />
        <RequestCode body={bodyOf({ ...draft, prompt: draft.prompt || (IDEAS[draft.kind]?.[0] ?? '') }, kind ?? {})} />
        <CreateButton body={body} quoted={quoted} name="Create" />
      </div>
    </form>
  )
}

type Props = { kind: Kind; draft: Draft; set: (change: Partial<Draft>) => void }

function Parameters({ kind, draft, set }: Props) {
  const [isOpen, setOpen] = useState(false)
  const { seed, format, options } = draft
  // Some of them cost money: what a draft brings along is seen.
  useEffect(() => void ([seed, format, ...Object.values(options)].some(isSet) && setOpen(true)), [options])
  const ratios = RATIOS[kind.name] ?? []
  const standard = ratioOf(kind.defaults?.size ?? '', ratios)
  const seconds = kind.defaults?.seconds ?? null
  return (
    <>
      {ratios.length > 0 && (
        <div class="field">
          <span class="field-label">Shape</span>
          <Segmented
            label="Shape"
            value={draft.ratio || standard}
            choices={ratios.map((value) => ({ value, name: <Shape ratio={value} /> }))}
            choose={(ratio) => set({ ratio: ratio === standard ? '' : ratio })}
          />
        </div>
      )}
      {seconds !== null && (
        <Length seconds={draft.seconds ?? seconds} most={kind.max?.seconds ?? seconds} choose={(value) => set({ seconds: value })} />
      )}
      {kind.fields?.['image_url'] && <FirstFrame frame={draft.frame} choose={(frame) => set({ frame })} />}
      <button type="button" class="more room-more" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name="chevron" size={16} /> More settings
      </button>
      {isOpen && (
        <div class="grid two">
          <InputField
            label="Seed"
            hint="The same one repeats a result."
            type="number"
            min={0}
            max={2147483647}
            step={1}
            value={draft.seed}
            onInput={(event) => set({ seed: event.currentTarget.value })}
          />
          <Options {...{ kind, draft, set }} />
          {(kind.formats?.length ?? 0) > 1 && (
            <SelectField
              label="Format"
              value={draft.format || kind.formats?.[0] || ''}
              choices={(kind.formats ?? []).map((value) => ({ value, name: value.toUpperCase() }))}
              choose={(format) => set({ format })}
            />
          )}
        </div>
      )}
    </>
  )
}

/** The fields that this kind takes here beside the usual ones. */
function Options({ kind, draft, set }: Props) {
  const { image_url: _picture, ...fields } = kind.fields ?? {}
  return Object.entries(fields).map(([name, schema]) => (
    <Control
      key={`${kind.name} ${name}`}
      name={name}
      schema={schema.enum ? { ...schema, enum: ['', ...schema.enum] } : schema}
      value={draft.options[name]}
      isRequired={false}
      change={(value) => set({ options: { ...draft.options, [name]: value } })}
    />
  ))
}

/** The ratio of a size such as 1024x1024 among those offered, else the first. */
function ratioOf(size: string, ratios: string[]): string {
  const [width = 1, height = 1] = size.split('x').map(Number)
  return (
    ratios.find((ratio) => {
      const [across = 1, down = 1] = ratio.split(':').map(Number)
      return Math.abs(width / height - across / down) < 0.02
    }) ??
    ratios[0] ??
    ''
  )
}

function Shape({ ratio }: { ratio: string }) {
  const [across = 1, down = 1] = ratio.split(':').map(Number)
  const scale = 15 / Math.max(across, down)
  return (
    <>
      <span class="shape" style={{ width: `${across * scale}px`, height: `${down * scale}px` }} aria-hidden="true" />
      {ratio}
    </>
  )
}

function Length({ seconds, most, choose }: { seconds: number; most: number; choose: (seconds: number) => void }) {
  return (
    <Field label="Length" hint={`Up to ${most} seconds.`}>
      {(wired) => (
        <div class="length">
          <input
            {...wired}
            type="range"
            min={1}
            max={most}
            step={most > 30 ? 1 : 0.5}
            value={seconds}
            aria-valuetext={`${seconds} seconds`}
            onInput={(event) => choose(Number(event.currentTarget.value))}
          />
          <output>{seconds} s</output>
        </div>
      )}
    </Field>
  )
}
