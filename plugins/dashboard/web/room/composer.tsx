/** The form of a generation: kind, prompt and parameters, the price, and the button that spends it. */
import { useState } from 'preact/hooks'
import { Field, Segmented, Select } from '../components/field.tsx'
import { Icon } from '../components/icon.tsx'
import { CreateButton } from './create-button.tsx'
import { KindChoice } from './kind-choice.tsx'
import type { Body, Kind } from './media-api.ts'
import { PriceLine, useQuote } from './price.tsx'
import { kindOf, useRoom, type Draft } from './room-state.ts'

const PROMPT_MAX = 8000
const RATIOS: Record<string, string[]> = { image: ['1:1', '4:3', '3:4', '16:9', '9:16'], video: ['16:9', '1:1', '9:16'] }
const IDEAS: Record<string, string[]> = {
  image: ['A lighthouse by the sea at dawn', 'A red balloon over snowy mountains', 'A quiet forest lake under the moon'],
  video: ['Waves under a full moon', 'A train through autumn hills', 'Snow over a small town'],
  music: ['A calm piano melody for reading', 'An upbeat theme for a product film', 'Slow strings at night'],
}

/** The request of a draft; null while it has no prompt. */
export function bodyOf({ kind, prompt, ratio, seconds, seed, format }: Draft): Body | null {
  if (prompt.trim() === '') return null
  return {
    kind,
    prompt: prompt.trim(),
    ...(ratio !== '' && kind !== 'music' ? { aspect_ratio: ratio } : {}),
    ...(seconds !== null && kind !== 'image' ? { duration_seconds: seconds } : {}),
    ...(seed !== '' ? { seed: Number(seed) } : {}),
    ...(format !== '' ? { output_format: format } : {}),
  }
}

export function Composer() {
  const room = useRoom()
  const { state, kinds } = room
  const draft = state.draft.value
  const kind = kindOf(room, draft.kind)
  const set = (change: Partial<Draft>) => (state.draft.value = { ...draft, ...change })
  const body = kind?.available ? bodyOf(draft) : null
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
        choose={(kind) => set({ kind, ratio: '', seconds: null, format: '' })}
      />
      <Field
        label="Prompt"
        hint={draft.prompt.length > PROMPT_MAX - 500 ? `${PROMPT_MAX - draft.prompt.length} characters left` : undefined}
      >
        {(wired) => (
          <textarea
            {...wired}
            class="input room-prompt"
            rows={4}
            maxLength={PROMPT_MAX}
            placeholder={`${IDEAS[draft.kind]?.[0] ?? ''} …`}
            value={draft.prompt}
            onInput={(event) => set({ prompt: event.currentTarget.value })}
          />
        )}
      </Field>
      {draft.prompt === '' && (
        <ul class="ideas" aria-label="Ideas">
          {(IDEAS[draft.kind] ?? []).map((idea) => (
            <li key={idea}>
              <button type="button" class="button small quiet" onClick={() => set({ prompt: idea })}>
                {idea}
              </button>
            </li>
          ))}
        </ul>
      )}
      {kind?.available && <Parameters kind={kind} draft={draft} set={set} />}
      <div class="room-spend">
        <PriceLine of={quoted} hint="Write a prompt, and the price appears here." />
        <CreateButton body={body} quoted={quoted} name="Create" />
      </div>
    </form>
  )
}

type Props = { kind: Kind; draft: Draft; set: (change: Partial<Draft>) => void }

function Parameters({ kind, draft, set }: Props) {
  const [isOpen, setOpen] = useState(false)
  const ratios = RATIOS[kind.verb] ?? []
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
      <button type="button" class="more room-more" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <Icon name="chevron" size={16} /> More settings
      </button>
      {isOpen && (
        <div class="grid two">
          <Field label="Seed" hint="The same seed repeats a result, where the engine takes one.">
            {(wired) => (
              <input
                {...wired}
                class="input"
                type="number"
                min={0}
                max={2147483647}
                step={1}
                value={draft.seed}
                onInput={(event) => set({ seed: event.currentTarget.value })}
              />
            )}
          </Field>
          {(kind.formats?.length ?? 0) > 1 && (
            <Field label="Format">
              {(wired) => (
                <Select
                  wired={wired}
                  value={draft.format || kind.formats?.[0] || ''}
                  choices={(kind.formats ?? []).map((value) => ({ value, name: value.toUpperCase() }))}
                  choose={(format) => set({ format })}
                />
              )}
            </Field>
          )}
        </div>
      )}
    </>
  )
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
