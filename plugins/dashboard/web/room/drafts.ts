/**
 * What was typed in the AI Room and the task on its stage, until sign-out: a reload or an ended session loses nothing. Each tab keeps its own;
 * a new one begins with what was changed last in any.
 */
import { DRAFTS, session } from '../api/session.ts'
import type { Task } from '../api/tasks.ts'
import { serverTime } from '../clock.ts'
import type { Source } from './media-api.ts'
import type { Edit } from './operation-body.ts'
import type { Draft } from './room-state.ts'

export type Drafts = {
  mode: 'make' | 'edit'
  draft: Draft
  edit: Edit
  sources: Source[]
  /** The task on the stage. */
  shown: Pick<Task, 'object' | 'id'> | undefined
}

const keyOf = (): string => `${DRAFTS}${session.peek()?.user.id}:${session.peek()?.tenant}`

/** What this person left under this tenant. */
export function keptDrafts(): Partial<Drafts> {
  try {
    const latest = localStorage.getItem(keyOf())
    // Without it the person has signed out since, in whatever tab.
    const own = latest === null ? null : sessionStorage.getItem(keyOf())
    const kept = JSON.parse(own ?? latest ?? '{}') as Partial<Drafts>
    const { draft, sources = [] } = kept
    if (draft?.frame && !isKept(draft.frame)) draft.frame = null
    return { ...kept, sources: sources.filter(isKept) }
  } catch {
    return {}
  }
}

/** Keeps it for this tab; for new ones too when the person has changed it here (`isChanged`). A browser without room for it keeps what it had. */
export function keepDrafts(drafts: Drafts, isChanged: boolean): void {
  const [key, text] = [keyOf(), JSON.stringify(drafts)]
  try {
    sessionStorage.setItem(key, text)
    if (isChanged || localStorage.getItem(key) === null) localStorage.setItem(key, text)
  } catch {}
}

/** Whether another tab has removed what this person left. */
export function areForgotten({ key, newValue }: StorageEvent): boolean {
  return newValue === null && (key === null || key === keyOf())
}

/** Whether the link of a source is still valid. */
function isKept({ url }: Source): boolean {
  const expires = URL.canParse(url, location.href) ? new URL(url, location.href).searchParams.get('exp') : null
  return expires === null || Number(expires) * 1000 > serverTime()
}
