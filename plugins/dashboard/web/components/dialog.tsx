import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { Button } from './button.tsx'
import { Notice } from './states.tsx'

type DialogProps = { title: string; close: () => void; children: ComponentChildren; wide?: boolean }

/** A modal dialog over the browser's own: it traps the focus, closes with Escape and gives the focus back. Rendered means open. */
export function Dialog({ title, close, children, wide = false }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null)
  const id = useId()
  useLayoutEffect(() => {
    const before = document.activeElement
    const dialog = element.current
    dialog?.showModal()
    // Its first field, else what the browser chooses.
    dialog?.querySelector<HTMLElement>('input, select, textarea')?.focus()
    return () => {
      // While it is open, nothing outside can take the focus.
      dialog?.close()
      if (before instanceof HTMLElement && before.isConnected) before.focus()
    }
  }, [])
  return (
    <dialog
      ref={element}
      class={wide ? 'dialog wide' : 'dialog'}
      aria-labelledby={id}
      onCancel={(event) => {
        event.preventDefault()
        close()
      }}
      onClick={(event) => event.target === element.current && close()}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id={id}>{title}</h2>
          <Button icon="close" look="icon-only quiet" aria-label="Close" onClick={close} />
        </header>
        {children}
      </div>
    </dialog>
  )
}

type FormProps = {
  title: string
  action: string
  tone?: 'primary' | 'danger'
  isReady?: boolean
  close: () => void
  /** What it throws is shown, and the form stays. */
  submit: () => Promise<void>
  children: ComponentChildren
}

/** A form in a dialog, with Cancel and the button that submits it. */
export function FormDialog({ title, action, tone = 'primary', isReady = true, close, submit, children }: FormProps) {
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<Error | null>(null)
  async function send(event: Event): Promise<void> {
    event.preventDefault()
    setBusy(true)
    setError(null)
    await submit().catch(setError)
    setBusy(false)
  }
  return (
    <Dialog title={title} close={close}>
      <form class="form" noValidate onSubmit={(event) => void send(event)}>
        {children}
        {error && (
          <div role="alert">
            <Notice tone="danger">{error.message}</Notice>
          </div>
        )}
        <div class="form-actions">
          <Button text="Cancel" onClick={close} />
          <Button text={action} look={tone} type="submit" disabled={!isReady || isBusy} />
        </div>
      </form>
    </Dialog>
  )
}
