/** Text for a model, which says when it is too long instead of losing its end. */
import { Field } from '../components/field.tsx'
import { promptFault } from './prompt-fault.ts'

type Props = {
  label: string
  hint?: string | undefined
  placeholder?: string
  rows: number
  value: string
  isRequired: boolean
  change: (value: string) => void
}

export function PromptField({ label, hint, placeholder, rows, value, isRequired, change }: Props) {
  return (
    <Field label={isRequired ? label : `${label} (optional)`} hint={hint} error={promptFault(value)}>
      {(wired) => (
        <textarea
          {...wired}
          class="input room-prompt"
          rows={rows}
          placeholder={placeholder}
          value={value}
          onInput={(event) => change(event.currentTarget.value)}
        />
      )}
    </Field>
  )
}
