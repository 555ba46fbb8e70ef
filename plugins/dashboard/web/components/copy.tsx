import { useState } from 'preact/hooks'
import { Icon } from './icon.tsx'
import { toast } from './toasts.tsx'

const SHOWN_MS = 2000

/** Copies a text. Where the browser refuses, the message says so and the text stays selectable. */
export function CopyButton({ text, label = 'Copy', isSmall = true }: { text: string; label?: string; isSmall?: boolean }) {
  const [done, setDone] = useState(false)
  async function copy(): Promise<void> {
    try {
      await navigator.clipboard.writeText(text)
      setDone(true)
      setTimeout(() => setDone(false), SHOWN_MS)
    } catch {
      toast('The browser did not allow copying: select the text instead.', 'danger')
    }
  }
  return (
    <button type="button" class={isSmall ? 'button small' : 'button'} onClick={() => void copy()}>
      <Icon name={done ? 'check' : 'copy'} size={isSmall ? 16 : 18} />
      <span aria-live="polite">{done ? 'Copied' : label}</span>
    </button>
  )
}

/** A block of code with a button that copies it. */
export function Code({ text, title }: { text: string; title: string }) {
  return (
    <div class="code">
      <div class="code-head">
        <span>{title}</span>
        <CopyButton text={text} />
      </div>
      <pre tabIndex={0} aria-label={title}>
        <code>{text}</code>
      </pre>
    </div>
  )
}
