/** API keys as the dashboard shows them; the secret itself only comes by `reveal`. */
import { api } from './client.ts'
import type { Product } from './plans.ts'

export type KeyLimit = { amount_per_period?: string; weekly_tokens?: number }

export type Key = {
  name: string
  plan: string
  product: Product
  state: 'Active' | 'Suspended' | 'Revoked' | 'Expired' | 'Pending'
  reason: string | null
  message: string | null
  prefix: string | null
  created_at: string
  /** To about a minute. */
  last_used_at: string | null
  expires_at: string | null
  rotation_revision: number
  overlap_until: string | null
  /** For edits: a later one makes them fail with `conflict`. Null for a key that cannot be changed here. */
  revision: string | null
  limit: KeyLimit | null
}

export type KeyList = { data: Key[]; locked: { plan: string; product: Product; reason: string; message: string }[] }
export type NewKey = { name: string; plan: string; limit?: KeyLimit; expires_at?: string }
export type KeyChange = 'rotate' | 'suspend' | 'resume' | 'revoke'

const of = (name: string) => `/keys/${encodeURIComponent(name)}`

/** The keys and plans of the tenant. */
export const listKeys = (): Promise<KeyList> => api('/keys')
/** Issues a key; the controller makes it soon after. */
export const issueKey = (key: NewKey): Promise<Key> => api('/keys', { method: 'POST', body: key })
/** Rotates, suspends, resumes or revokes a key in the revision that the person has seen. Rejects when it has changed since. */
export const changeKey = ({ name, revision }: Key, change: KeyChange): Promise<Key> =>
  api(`${of(name)}/${change}`, { method: 'POST', body: { revision } })
/** Sets the limit of a key, or removes it. Rejects as `changeKey`. */
export const limitKey = ({ name, revision }: Key, limit: KeyLimit | null): Promise<Key> =>
  api(`${of(name)}/limit`, { method: 'POST', body: { revision, limit } })
/** The newest key itself. */
export const revealKey = async (name: string): Promise<string> => (await api<{ key: string }>(`${of(name)}/reveal`, { method: 'POST' })).key
