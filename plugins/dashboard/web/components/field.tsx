import type { ComponentChildren } from 'preact'
import { useId } from 'preact/hooks'

type Wired = { id: string; 'aria-describedby'?: string; 'aria-invalid'?: true }

type FieldProps = {
  label: ComponentChildren
  hint?: ComponentChildren
  error?: string | null
  children: (wired: Wired) => ComponentChildren
}

/** A form control with its label, a hint and an error, wired for screen readers: spread `wired` on the control. */
export function Field({ label, hint, error, children }: FieldProps) {
  const id = useId()
  const described = [hint ? `${id}-hint` : '', error ? `${id}-error` : ''].filter(Boolean).join(' ')
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({
        id,
        ...(described === '' ? {} : { 'aria-describedby': described }),
        ...(error ? { 'aria-invalid': true as const } : {}),
      })}
      {hint && (
        <p id={`${id}-hint`} class="hint">
          {hint}
        </p>
      )}
      {error && (
        <p id={`${id}-error`} class="field-error" role="alert">
          {error}
        </p>
      )}
    </div>
  )
}

export type Choice = { value: string; name: ComponentChildren }

type SegmentedProps = { label: string; value: string; choices: Choice[]; choose: (value: string) => void }

/** One of a few, as a row of radio buttons. */
export function Segmented({ label, value, choices, choose }: SegmentedProps) {
  const group = useId()
  return (
    <div class="segmented" role="radiogroup" aria-label={label}>
      {choices.map((choice) => (
        <label key={choice.value}>
          <input type="radio" name={group} value={choice.value} checked={choice.value === value} onChange={() => choose(choice.value)} />
          <span>{choice.name}</span>
        </label>
      ))}
    </div>
  )
}

type SelectProps = {
  wired: Wired | { 'aria-label': string }
  value: string
  choices: { value: string; name: string }[]
  choose: (value: string) => void
}

export function Select({ wired, value, choices, choose }: SelectProps) {
  return (
    <select {...wired} class="input" value={value} onChange={(event) => choose(event.currentTarget.value)}>
      {choices.map((choice) => (
        <option key={choice.value} value={choice.value}>
          {choice.name}
        </option>
      ))}
    </select>
  )
}

type DateInputProps = {
  wired: Wired
  type?: 'date' | 'datetime-local'
  value: string
  isRequired?: boolean
  choose: (value: string) => void
}

/** A day, or a time of the user's zone. `choose` gets the value as the browser writes it, and an empty one while it is incomplete. */
export function DateInput({ wired, type = 'date', value, isRequired = false, choose }: DateInputProps) {
  return (
    <input
      {...wired}
      class="input"
      type={type}
      required={isRequired}
      value={value}
      onChange={(event) => choose(event.currentTarget.value)}
    />
  )
}

type NameInputProps = { wired: Wired; value: string; maxLength?: number; change: (value: string) => void }

/** A name to be typed exactly, without help of the browser. */
export function NameInput({ wired, value, maxLength, change }: NameInputProps) {
  return (
    <input
      {...wired}
      class="input mono"
      autocomplete="off"
      spellcheck={false}
      maxLength={maxLength}
      value={value}
      onInput={(event) => change(event.currentTarget.value)}
    />
  )
}
