/** API Keys: issue, reveal, rotate, suspend, resume, revoke. The key of a plan that is not active is absent, and the page says why. */
import { useEffect, useState } from 'preact/hooks'
import { listKeys, type Key, type KeyList } from '../../api/keys.ts'
import { isActive, plans, type Plan } from '../../api/plans.ts'
import { session } from '../../api/session.ts'
import { Button } from '../../components/button.tsx'
import { Card, PageHead } from '../../components/card.tsx'
import { Async, useLoad } from '../../components/load.tsx'
import { Empty, Notice } from '../../components/states.tsx'
import { toast, toastError } from '../../components/toasts.tsx'
import { Clients } from './clients.tsx'
import { IssueDialog } from './issue-dialog.tsx'
import { KeyCard } from './key-card.tsx'
import { forgetAll, forgetAllBut, reveal } from './revealed.ts'

/** A key that an operator takes away leaves the page within a second. */
const KEYS_MS = 700

export function Keys() {
  const [isIssuing, setIssuing] = useState(false)
  const load = useLoad(listKeys, [], KEYS_MS)
  const [issued, setIssued] = useState<string | null>(null)
  useEffect(() => forgetAll, [])
  // The controller makes a key soon after it was issued; its author wants to use it.
  const made = load.value.value.data?.data.find(({ name, state }) => name === issued && state === 'Active')
  useEffect(() => {
    if (!made) return
    setIssued(null)
    if (session.value?.key_reveal) void reveal(made).catch(toastError)
  }, [made])
  const active = (plans.value ?? []).filter(isActive)
  const management = session.value?.key_management ?? { allowed: false }
  return (
    <>
      <PageHead
        title="API Keys"
        lead="A key opens one plan's API. It exists here only while its plan is active, and its secret is shown only when you reveal it."
        actions={
          <Button
            text="Issue a key"
            icon="plus"

            look="primary"
            disabled={!management.allowed || active.length === 0}
            onClick={() => setIssuing(true)}
          />
        }
      />
      {!management.allowed && (
        <Notice tone="info" icon="lock" title="Keys are managed elsewhere">
          {management.reason ?? 'Your provider issues and changes the keys of this tenant.'}
        </Notice>
      )}
      <Async of={load} lines={6}>
        {(list) => <List list={list} plans={plans.value ?? []} canManage={management.allowed} reload={load.reload} />}
      </Async>
      {isIssuing && (
        <IssueDialog
          plans={active}
          close={() => setIssuing(false)}
          issued={(key) => {
            setIssuing(false)
            setIssued(key.name)
            toast(`${key.name} is issued, and ready to use below.`)
            void load.reload()
          }}
        />
      )}
    </>
  )
}

type ListProps = { list: KeyList; plans: Plan[]; canManage: boolean; reload: () => Promise<void> }

function List({ list, plans: known, canManage, reload }: ListProps) {
  const shown = list.data.filter(({ state }) => state !== 'Revoked')
  useEffect(() => forgetAllBut(shown), [list])
  const nameOf = (plan: string) => known.find(({ name }) => name === plan)?.display_name ?? plan
  return (
    <>
      <div class="stack" aria-live="polite">
        {list.locked.map(({ plan, message }) => (
          <Notice key={plan} tone="warn" icon="lock" title={`${nameOf(plan)} is locked`}>
            {message} Its keys do not work, and come back when the plan is active again.
          </Notice>
        ))}
      </div>
      {shown.length === 0 ? (
        <NoKeys hasLocked={list.locked.length > 0} />
      ) : (
        <ul class="stack keys">
          {shown.map((key) => (
            <KeyCard key={key.name} of={key} plan={known.find(({ name }) => name === key.plan)} canManage={canManage} reload={reload} />
          ))}
        </ul>
      )}
      <Clients keys={shown} />
      <Revoked keys={list.data.filter(({ state }) => state === 'Revoked')} />
    </>
  )
}

function NoKeys({ hasLocked }: { hasLocked: boolean }) {
  return (
    <div class="card">
      <Empty icon="key" title={hasLocked ? 'No keys of an active plan' : 'No keys yet'}>
        {hasLocked
          ? 'Keys appear here while their plan is active.'
          : 'Issue one for each program that calls the API, so that you can change one without the others.'}
      </Empty>
    </div>
  )
}

function Revoked({ keys }: { keys: Key[] }) {
  if (keys.length === 0) return null
  return (
    <Card title="Revoked" hint="These never work again.">
      <ul class="row">
        {keys.map(({ name, prefix }) => (
          <li key={name} class="mono muted break">
            {name} {prefix && `(${prefix}…)`}
          </li>
        ))}
      </ul>
    </Card>
  )
}
