import type { ComponentChildren } from 'preact'
import { useState } from 'preact/hooks'
import type { Key, KeyChange } from '../../api/keys.ts'
import { Dialog, DialogActions } from '../../components/dialog.tsx'
import { Field, NameInput } from '../../components/field.tsx'
import { Notice } from '../../components/states.tsx'

type Props = { of: Key; close: () => void; confirm: (what: KeyChange) => Promise<void> }

type ConfirmProps = {
  title: string
  close: () => void
  action: string
  tone?: 'primary' | 'danger'
  isReady?: boolean
  submit: () => Promise<void>
  children: ComponentChildren
}

/** Explains a change, and makes it when the person confirms. */
function Confirm({ title, close, action, tone = 'primary', isReady = true, submit, children }: ConfirmProps) {
  const [isBusy, setBusy] = useState(false)
  return (
    <Dialog title={title} close={close}>
      <form
        class="form"
        onSubmit={(event) => {
          event.preventDefault()
          setBusy(true)
          void submit()
        }}
      >
        {children}
        <DialogActions action={action} tone={tone} isDisabled={!isReady || isBusy} close={close} />
      </form>
    </Dialog>
  )
}

export function RotateDialog({ of: { name }, close, confirm, overlap }: Props & { overlap: string }) {
  return (
    <Confirm title={`Rotate ${name}`} close={close} action="Rotate" submit={() => confirm('rotate')}>
      <p>A new key is made at once, under the same name.</p>
      <ol class="explained">
        <li>Rotate, and reveal the new key.</li>
        <li>
          Put it into your programs. The current key still works for <strong>{overlap}</strong>, so nothing stops.
        </li>
        <li>After that the old key is refused.</li>
      </ol>
      <Notice tone="warn">Has somebody else seen the key? Then revoke it instead: after a rotation it still works for {overlap}.</Notice>
    </Confirm>
  )
}

export function SuspendDialog({ of: { name }, close, confirm }: Props) {
  return (
    <Confirm title={`Suspend ${name}`} close={close} action="Suspend" submit={() => confirm('suspend')}>
      <p>Requests with this key are refused within a second, until you resume it. Tasks that it has already created continue.</p>
    </Confirm>
  )
}

export function RevokeDialog({ of: { name }, close, confirm }: Props) {
  const [typed, setTyped] = useState('')
  return (
    <Confirm
      title={`Revoke ${name}`}
      close={close}
      action="Revoke for good"
      tone="danger"
      isReady={typed === name}
      submit={() => confirm('revoke')}
    >
      <Notice tone="danger">The key stops at once and never works again. This cannot be undone.</Notice>
      <Field
        label={
          <>
            Type <code>{name}</code> to confirm
          </>
        }
      >
        {(wired) => <NameInput wired={wired} value={typed} change={setTyped} />}
      </Field>
    </Confirm>
  )
}
