/** What was typed in the AI Room and the task on its stage, in this browser until sign-out: a reload or an ended session loses nothing. */
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
  shown?: Pick<Task, 'object' | 'id'>
}

const keyOf = (): string => `${DRAFTS}${session.peek()?.user.id}:${session.peek()?.tenant}`

/** What this person left under this tenant. */
export function keptDrafts(): Partial<Drafts> {
  try {
    const kept = JSON.parse(localStorage.getItem(keyOf()) ?? '{}') as Partial<Drafts>
    return { ...kept, sources: (kept.sources ?? []).filter(isKept) }
  } catch {
    return {}
  }
}

/** Keeps it. A browser without room for it keeps nothing. */
export function keepDrafts(drafts: Drafts): void {
  try {
    localStorage.setItem(keyOf(), JSON.stringify(drafts))
  } catch {
    localStorage.removeItem(keyOf())
  }
}

/** Whether another tab has removed what this person left. */
export function areForgotten({ key, newValue }: StorageEvent): boolean {
  return newValue === null && (key === null || key === keyOf())
}

/** Whether the link of a source is still valid. */
function isKept({ url }: Source): boolean {
  const expires = new URL(url, location.href).searchParams.get('exp')
  return expires === null || Number(expires) * 1000 > serverTime()
}
