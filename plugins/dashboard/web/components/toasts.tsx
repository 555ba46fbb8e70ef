/** Short messages about what has just happened, announced to screen readers. */
import { signal } from '@preact/signals'
import { Button } from './button.tsx'
import { Icon } from './icon.tsx'

type Toast = { id: number; tone: 'ok' | 'danger' | 'info'; text: string }

const SHOWN_MS = 6000
const toasts = signal<Toast[]>([])
let last = 0

export function toast(text: string, tone: Toast['tone'] = 'ok'): void {
  const id = ++last
  toasts.value = [...toasts.value.slice(-2), { id, tone, text }]
  setTimeout(() => dismiss(id), SHOWN_MS)
}

/** The message of an error, as a toast. */
export function toastError(error: unknown): void {
  toast(error instanceof Error ? error.message : String(error), 'danger')
}

function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id)
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map(({ id, tone, text }) => (
        <div key={id} class={`toast tone-${tone}`}>
          <Icon name={tone === 'danger' ? 'warning' : tone === 'ok' ? 'check' : 'info'} />
          <span>{text}</span>
          <Button icon="close" look="icon-only quiet" aria-label="Dismiss" onClick={() => dismiss(id)} />
        </div>
      ))}
    </div>
  )
}
