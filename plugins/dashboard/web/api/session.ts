/** Who is signed in, and the tenant that they act for. */
import { signal } from '@preact/signals'
import { api, signedOut } from './client.ts'

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

export async function loadSession(): Promise<void> {
  session.value = await api<Session>('/session')
}

export async function switchTenant(tenant: string): Promise<void> {
  session.value = await api<Session>('/session/tenant', { method: 'PUT', body: { tenant } })
}

/** Ends the session here and, where the provider has such a page, there. */
export async function signOut(): Promise<void> {
  const ended = await api<{ end_session_url?: string } | undefined>('/sign-out', { method: 'POST' })
  session.value = null
  signedOut.value = { reason: 'left' }
  if (ended?.end_session_url !== undefined) location.assign(ended.end_session_url)
}
