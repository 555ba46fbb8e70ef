/**
 * Sealing of members that a client must replay for the model's next turn and that may name a vendor: thought signatures, reasoning details,
 * reasoning. They travel encrypted (`encrypted-ids.ts`) in the id of a tool call, which every client replays, or in one opaque member.
 */
import type { Ids, SealingIds } from './encrypted-ids.ts'
import { isMembers, own, parsedMembers, type Clean, type Members } from './allowlist.ts'
import { isLongId } from './call-ids.ts'
import { BadAnswer } from './wire.ts'

/** Not part of any id that an upstream is known to give. */
const SEPARATOR = '\0'
/** A larger `extra_content` is dropped: ids are repeated in requests, logs and user interfaces. */
const MAX_EXTRA_LENGTH = 64 * 1024

/** The id that the client gets for a tool call. `extra`: the call's `extra_content`, where vendors put the thought's signature. */
export function sealCallId(id: string, extra: unknown, ids: SealingIds): string {
  const json = isMembers(extra) ? JSON.stringify(extra) : ''
  return json === '' || json.length > MAX_EXTRA_LENGTH ? ids.encrypt('call_', id) : ids.seal('call', id + SEPARATOR + json)
}

/** The upstream's id and, if it was sealed with one, the `extra_content` of the call. */
export function openCallId(sealed: string, ids: Ids): { id: string; extra: Members | null } {
  const plain = ids.decrypt(sealed)
  const end = plain.indexOf(SEPARATOR)
  const id = end < 0 ? plain : plain.slice(0, end)
  if (isLongId(id) && !ids.longCalls.has(id)) ids.longCalls.set(id, plain === sealed ? null : sealed)
  return { id, extra: end < 0 ? null : parsedMembers(plain.slice(end + 1)) }
}

/** What a turn's reasoning consists of, by the wire that it came from. */
export type SealedReasoning = {
  /** Chat: the member that held the text, and the text. */
  text?: { member: 'reasoning_content' | 'reasoning'; text: string }
  /** Chat: `reasoning_details`, possibly in the fragments of a stream. */
  details?: unknown[]
  /** Responses: the reasoning item. */
  item?: Members
}

/** With or without the letters of its origin. */
const SEALED = /^seal[a-z]{2,4}_/

/** Seals reasoning for the subscription of `ids`; `openReasoning` opens it. */
export function sealReasoning(reasoning: SealedReasoning, ids: SealingIds): string {
  return ids.seal('seal', JSON.stringify(reasoning))
}

/** Null for text that was not sealed for this subscription. */
export function openReasoning(sealed: unknown, ids: Ids): SealedReasoning | null {
  if (typeof sealed !== 'string' || !SEALED.test(sealed)) return null
  const plain = ids.decrypt(sealed)
  const opened = plain === sealed ? null : (parsedMembers(plain) as SealedReasoning | null)
  for (const part of [opened?.details, opened?.item]) if (part) ids.opened.set(part, sealed)
  return opened
}

/** The one entry of `reasoning_details` that a chat client gets and replays. */
export function sealedDetail(reasoning: SealedReasoning, ids: SealingIds): Members {
  return { type: 'reasoning.encrypted', data: sealReasoning(reasoning, ids) }
}

/** `reasoning_details` of an upstream, sealed. */
export const reasoningDetails: Clean = (value, ids) =>
  Array.isArray(value) && value.length > 0 ? [sealedDetail({ details: value as unknown[] }, ids)] : undefined

/** The reasoning in the `reasoning_details` that a chat client replays; entries that we did not seal are left out. */
export function replayedReasoning(message: Members, ids: Ids): SealedReasoning[] {
  const replayed = own(message, 'reasoning_details')
  if (!Array.isArray(replayed)) return []
  return replayed.flatMap((entry: unknown) => (isMembers(entry) && openReasoning(own(entry, 'data'), ids)) || [])
}

/** The `reasoning_details` of a turn, behind those that it has already. Empty without any. */
export function detailsOf(reasoning: readonly SealedReasoning[], ids: Ids, joined: unknown[] = []): unknown[] {
  for (const { details = [] } of reasoning) {
    joinDetails(details, joined)
    const sealed = ids.opened.get(details)
    if (sealed !== undefined) ids.opened.set(joined, sealed)
  }
  return joined
}

/** More is not collected. */
const MAX_DETAILS_LENGTH = 4 * 1024 * 1024

/** The `reasoning_details` of a streamed choice, whose fragments are joined until something else follows: a client replays every entry that it got. */
export type DetailFragments = {
  /** Takes the fragments out of a delta. Throws `BadAnswer` for too many. */
  take(index: number, delta: Members): void
  isEmpty(): boolean
  /** Those of the choice, which then has none; null without any. */
  release(index: number): unknown[] | null
}

export function openDetailFragments(): DetailFragments {
  const collected = new Map<number, unknown[]>()
  let length = 0
  return {
    take(index, delta) {
      const details = own(delta, 'reasoning_details')
      delete delta['reasoning_details']
      if (!Array.isArray(details) || details.length === 0) return
      const joined = collected.get(index) ?? []
      length += joinDetails(details, joined)
      if (length > MAX_DETAILS_LENGTH) throw new BadAnswer('the reasoning details are too large')
      collected.set(index, joined)
    },
    isEmpty: () => collected.size === 0,
    release(index) {
      const joined = collected.get(index) ?? null
      collected.delete(index)
      return joined
    },
  }
}

/**
 * Joins the fragments of streamed `reasoning_details` to those already joined: neighbours of one type and index are one entry. Returns by how
 * many characters these grew.
 */
function joinDetails(details: readonly unknown[], joined: unknown[]): number {
  let added = 0
  for (const entry of details) {
    const last = joined.at(-1)
    if (isMembers(entry) && isMembers(last) && entry['type'] === last['type'] && entry['index'] === last['index'] && 'index' in entry)
      added += append(last, entry)
    else {
      joined.push(isMembers(entry) ? { ...entry } : entry)
      added += JSON.stringify(entry).length
    }
  }
  return added
}

function append(entry: Members, fragment: Members): number {
  let added = 0
  for (const [name, value] of Object.entries(fragment)) {
    const before = entry[name]
    if (['text', 'summary', 'data'].includes(name) && typeof before === 'string' && typeof value === 'string') {
      entry[name] = before + value
      added += value.length
    } else if (value !== null && value !== undefined) entry[name] = value
  }
  return added
}
