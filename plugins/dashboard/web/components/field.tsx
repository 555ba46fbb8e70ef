import type { ComponentChildren, ComponentProps } from 'preact'
import { useId } from 'preact/hooks'

type Wired = { id: string; 'aria-describedby'?: string; 'aria-invalid'?: true }

type Labelled = { label: ComponentChildren; hint?: ComponentChildren; error?: string | null | undefined }
type FieldProps = Labelled & { children: (wired: Wired) => ComponentChildren }

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

type SelectProps = Labelled & { value: string; choices: { value: string; name: string }[]; choose: (value: string) => void }

/** One of several. */
export function SelectField({ value, choices, choose, ...field }: SelectProps) {
  return (
    <Field {...field}>
      {(wired) => (
        <select {...wired} class="input" value={value} onChange={(event) => choose(event.currentTarget.value)}>
          {choices.map((choice) => (
            <option key={choice.value} value={choice.value}>
              {choice.name}
            </option>
          ))}
        </select>
      )}
    </Field>
  )
}

type InputProps = Labelled & ComponentProps<'input'>

/** An input of one line with its label, and with what else an `input` takes. */
export function InputField({ label, hint, error, ...input }: InputProps) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(wired) => <input {...wired} class="input" {...input} />}
    </Field>
  )
}

type DateProps = Labelled & { type?: 'date' | 'datetime-local'; value: string; choose: (value: string) => void }

/** A day, or a time of the user's zone. `choose` gets the value as the browser writes it, and an empty one while it is incomplete. */
export function DateField({ choose, ...field }: DateProps) {
  return <InputField type="date" {...field} onChange={(event) => choose(event.currentTarget.value)} />
}

type NameProps = Labelled & { value: string; maxLength?: number; change: (value: string) => void }

/** A name to be typed exactly, without help of the browser. */
export function NameField({ change, ...field }: NameProps) {
  return (
    <InputField
      {...field}
      class="input mono"
      autocomplete="off"
      spellcheck={false}
      onInput={(event) => change(event.currentTarget.value)}
    />
  )
}
