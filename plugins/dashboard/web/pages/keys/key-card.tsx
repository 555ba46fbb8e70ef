import { useState } from 'preact/hooks'
import { changeKey, type Key, type KeyChange } from '../../api/keys.ts'
import { Problem } from '../../api/client.ts'
import type { Plan } from '../../api/plans.ts'
import { session } from '../../api/session.ts'
import { now } from '../../clock.ts'
import { Button } from '../../components/button.tsx'
import { Fact } from '../../components/card.tsx'
import { CopyButton } from '../../components/copy.tsx'
import { Badge, Notice, type Tone } from '../../components/states.tsx'
import { Ago, Countdown } from '../../components/time.tsx'
import { toast, toastError } from '../../components/toasts.tsx'
import { day, money, short, span } from '../../format.ts'
import { RevokeDialog, RotateDialog, SuspendDialog } from './change-dialogs.tsx'
import { LimitDialog } from './limit-dialog.tsx'
import { forget, reveal, revealed } from './revealed.ts'

const TONES: Record<Key['state'], Tone> = { Active: 'ok', Suspended: 'warn', Revoked: 'danger', Expired: 'warn', Pending: 'info' }
const DONE: Record<KeyChange, string> = {
  rotate: 'is being rotated: reveal the new key once it is made.',
  suspend: 'is suspended.',
  resume: 'works again.',
  revoke: 'is revoked.',
}

type Asked = KeyChange | 'limit'
type Props = { of: Key; plan: Plan | undefined; canManage: boolean; reload: () => Promise<void> }

export function KeyCard({ of: key, plan, canManage, reload }: Props) {
  const [asked, setAsked] = useState<Asked | null>(null)
  async function change(what: KeyChange): Promise<void> {
    try {
      await changeKey(key, what)
      if (what !== 'resume') forget(key.name)
      toast(`${key.name} ${DONE[what]}`)
    } catch (error) {
      if (error instanceof Problem && error.code === 'conflict')
        toast('The key has been changed elsewhere. This is its current state: try again.', 'danger')
      else toastError(error)
    }
    setAsked(null)
    await reload()
  }
  const dialog = { of: key, close: () => setAsked(null), confirm: change }
  return (
    <li class="card key">
      <div class="key-head">
        <div>
          <h2 class="break">{key.name}</h2>
          <p class="muted break">{plan?.display_name ?? key.plan}</p>
        </div>
        <Badge tone={TONES[key.state]}>{key.state === 'Pending' ? 'Being made' : key.state}</Badge>
      </div>
      <Secret of={key} />
      {key.message && <Notice tone="warn">{key.message}</Notice>}
      {key.overlap_until && Date.parse(key.overlap_until) > now.value && (
        <Notice tone="info" icon="rotate">
          The key before the rotation still works for <Countdown to={key.overlap_until} />.
        </Notice>
      )}
      <Facts {...key} />
      {canManage && key.revision !== null && <Actions of={key} ask={setAsked} resume={() => change('resume')} />}
      {asked === 'rotate' && <RotateDialog {...dialog} overlap={span((plan?.key_policy.rotation_overlap_seconds ?? 0) * 1000)} />}
      {asked === 'suspend' && <SuspendDialog {...dialog} />}
      {asked === 'revoke' && <RevokeDialog {...dialog} />}
      {asked === 'limit' && <LimitDialog of={key} close={dialog.close} changed={reload} />}
    </li>
  )
}

/** The prefix, and the whole key once its owner has revealed it. */
function Secret({ of: key }: { of: Key }) {
  const [isBusy, setBusy] = useState(false)
  const shown = revealed.value.get(key.name)
  if (key.state === 'Pending') return <p class="muted">The controller is making the key. It appears here in a moment.</p>
  async function show(): Promise<void> {
    setBusy(true)
    await reveal(key).catch(toastError)
    setBusy(false)
  }
  return (
    <div class="secret">
      <code class="break">{shown ? shown.secret : `${key.prefix ?? ''}${'•'.repeat(12)}`}</code>
      {shown ? (
        <span class="row">
          <CopyButton text={shown.secret} label="Copy key" />
          <Button text="Hide" look="small" onClick={() => forget(key.name)} />
        </span>
      ) : (
        session.value?.key_reveal && (
          <Button
            text="Reveal"
            icon="eye"

            look="small"
            disabled={isBusy || key.state !== 'Active'}
            onClick={() => void show()}
            aria-label={`Reveal ${key.name}`}
          />
        )
      )}
    </div>
  )
}

function Facts({ created_at: created, last_used_at: used, expires_at: expires, rotation_revision: rotations, limit }: Key) {
  return (
    <dl class="facts">
      <Fact name="Created">
        <Ago at={created} />
      </Fact>
      <Fact name="Last used">{used ? <Ago at={used} /> : 'never'}</Fact>
      <Fact name="Expires">{expires ? day(expires) : 'never'}</Fact>
      <Fact name="Rotations">{rotations}</Fact>
      <Fact name="Limit">
        {limit?.amount_per_period
          ? `${money(limit.amount_per_period)} a period`
          : limit?.weekly_tokens
            ? `${short(limit.weekly_tokens)} tokens a week`
            : 'none'}
      </Fact>
    </dl>
  )
}

type ActionsProps = { of: Key; ask: (what: Asked) => void; resume: () => void }

function Actions({ of: { name, state, reason }, ask, resume }: ActionsProps) {
  if (state === 'Pending' || state === 'Expired') return null
  return (
    <div class="row">
      {state === 'Active' ? (
        <>
          <Button text="Rotate" icon="rotate" look="small" aria-label={`Rotate ${name}`} onClick={() => ask('rotate')} />
          <Button text="Suspend" icon="pause" look="small" aria-label={`Suspend ${name}`} onClick={() => ask('suspend')} />
        </>
      ) : (
        // What its plan holds back, nobody resumes.
        reason === 'KeySuspended' && <Button text="Resume" icon="play" look="small" aria-label={`Resume ${name}`} onClick={resume} />
      )}
      <Button text="Limit" icon="chart" look="small" aria-label={`Limit of ${name}`} onClick={() => ask('limit')} />
      <Button text="Revoke" icon="trash" look="small quiet revoke" aria-label={`Revoke ${name}`} onClick={() => ask('revoke')} />
    </div>
  )
}
