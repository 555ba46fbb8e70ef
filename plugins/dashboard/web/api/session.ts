/** Who is signed in, and the tenant that they act for. */
import { signal } from '@preact/signals'
import { toast } from '../components/toasts.tsx'
import { api, shownTenant, signedOut, tenantRefusals } from './client.ts'
import { forgetPerson, rememberTenant, tenantBefore } from './last-tenant.ts'
import { forgetPlans } from './plans.ts'

/** Drafts are under this and the ids of person and tenant. */
export const DRAFTS = 'room-draft:'

export type Session = {
  user: { id: string; name: string }
  tenant: string
  tenants: string[]
  sign_in: 'local' | 'oidc'
  key_management: { allowed: boolean; reason?: string }
  /** Whether keys can be revealed: a gateway with derived keys only cannot decrypt them. */
  key_reveal: boolean
  public_url: string
  brand: string
  model: string
  version: string
}

/** `null` until the server has answered. */
export const session = signal<Session | null>(null)

/** True while the session is being read after a switch, in which requests of before may still be refused. */
let isSettling = false

/** Shows a session. Nothing of the tenant before stays. */
function take(next: Session): void {
  if (next.tenant !== shownTenant.value) forgetPlans()
  shownTenant.value = next.tenant
  session.value = next
  rememberTenant(next.tenant)
}

/** Reads who is signed in. Who signed in again after their session had ended is where they were. */
export async function loadSession(): Promise<void> {
  const begun = await api<Session>('/session')
  const before = tenantBefore()
  if (before === null || before === begun.tenant || !begun.tenants.includes(before)) take(begun)
  else await switchTenant(before)
}

/** Chooses one of the tenants that the person may act for. */
export async function switchTenant(tenant: string): Promise<void> {
  isSettling = true
  try {
    take(await api<Session>('/session/tenant', { method: 'PUT', body: { tenant } }))
  } finally {
    isSettling = false
  }
}

/** Follows a switch that another tab of this browser has made. A failure is tried again by the next request. */
async function followSwitch(): Promise<void> {
  if (isSettling) return
  isSettling = true
  const before = shownTenant.value
  await loadSession().catch(() => {})
  isSettling = false
  if (shownTenant.value !== before) toast(`Another tab has switched to ${shownTenant.value}, and so has this one.`, 'info')
}
tenantRefusals.subscribe((times) => void (times > 0 && followSwitch()))

/** Ends the session here and, where the provider has such a page, there. */
export async function signOut(): Promise<void> {
  const ended = await api<{ end_session_url?: string } | undefined>('/sign-out', { method: 'POST' })
  session.value = null
  forgetPerson(DRAFTS)
  signedOut.value = { reason: 'left' }
  if (ended?.end_session_url !== undefined) location.assign(ended.end_session_url)
}
