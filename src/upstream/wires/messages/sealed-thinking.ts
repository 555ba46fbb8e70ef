/**
 * Thinking of a Messages upstream in the `encrypted_content` of a reasoning item, which clients of the other wires replay. The block travels whole,
 * because its signature covers its text. Clients get it encrypted, as all that only the upstream reads (`encrypted-ids.ts`).
 */
import { isMembers, type Members } from '../allowlist.ts'

/** Begins no content of a Responses upstream. */
const MARK = 'thinking:'

/** The content for a `thinking` or `redacted_thinking` block. */
export function sealThinking(block: Members): string {
  return MARK + JSON.stringify(block)
}

/** The block of decrypted content; null for what is of another wire. */
export function openThinking(content: unknown): Members | null {
  if (typeof content !== 'string' || !content.startsWith(MARK)) return null
  try {
    const block: unknown = JSON.parse(content.slice(MARK.length))
    return isMembers(block) ? block : null
  } catch {
    return null
  }
}
