import type { ComponentChildren } from 'preact'
import { useId, useLayoutEffect, useRef } from 'preact/hooks'
import { Icon } from './icon.tsx'
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
          <button type="button" class="button icon-only quiet" aria-label="Close" onClick={close}>
            <Icon name="close" />
          </button>
        </header>
        {children}
      </div>
    </dialog>
  )
}

type DialogActionsProps = { action: string; tone?: 'primary' | 'danger'; isDisabled: boolean; error?: Error | null; close: () => void }

/** The end of a form in a dialog: why it was refused, Cancel, and the button that submits it. */
export function DialogActions({ action, tone = 'primary', isDisabled, error = null, close }: DialogActionsProps) {
  return (
    <>
      {error && (
        <div role="alert">
          <Notice tone="danger">{error.message}</Notice>
        </div>
      )}
      <div class="form-actions">
        <button type="button" class="button" onClick={close}>
          Cancel
        </button>
        <button type="submit" class={`button ${tone}`} disabled={isDisabled}>
          {action}
        </button>
      </div>
    </>
  )
}
