import { useState } from 'preact/hooks'
import type { Key, KeyChange } from '../../api/keys.ts'
import { FormDialog } from '../../components/dialog.tsx'
import { NameField } from '../../components/field.tsx'
import { Notice } from '../../components/states.tsx'

type Props = { of: Key; close: () => void; confirm: (what: KeyChange) => Promise<void> }

export function RotateDialog({ of: { name }, close, confirm, overlap }: Props & { overlap: string }) {
  return (
    <FormDialog title={`Rotate ${name}`} close={close} action="Rotate" submit={() => confirm('rotate')}>
      <p>A new key is made at once, under the same name.</p>
      <ol class="explained">
        <li>Rotate, and reveal the new key.</li>
        <li>
          Put it into your programs. The current key still works for <strong>{overlap}</strong>, so nothing stops.
        </li>
        <li>After that the old key is refused.</li>
      </ol>
      <Notice tone="warn">Has somebody else seen the key? Then revoke it instead: after a rotation it still works for {overlap}.</Notice>
    </FormDialog>
  )
}

export function SuspendDialog({ of: { name }, close, confirm }: Props) {
  return (
    <FormDialog title={`Suspend ${name}`} close={close} action="Suspend" submit={() => confirm('suspend')}>
      <p>Requests with this key are refused within a second, until you resume it. Tasks that it has already created continue.</p>
    </FormDialog>
  )
}

export function RevokeDialog({ of: { name }, close, confirm }: Props) {
  const [typed, setTyped] = useState('')
  return (
    <FormDialog
      title={`Revoke ${name}`}
      close={close}
      action="Revoke for good"
      tone="danger"
      isReady={typed === name}
      submit={() => confirm('revoke')}
    >
      <Notice tone="danger">The key stops at once and never works again. This cannot be undone.</Notice>
      <NameField
        label={
          <>
            Type <code>{name}</code> to confirm
          </>
        }
        value={typed}
        change={setTyped}
      />
    </FormDialog>
  )
}
