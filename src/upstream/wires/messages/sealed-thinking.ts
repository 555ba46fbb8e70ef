/**
 * Thinking that a client replays for its upstream. On the Messages wire its signature is encrypted, because it may name the model. For clients of the other
 * wires the block travels whole in the `encrypted_content` of a reasoning item, because the signature covers its text.
 */
import { parsedMembers, type Members } from '../allowlist.ts'
import type { Ids, SealingIds } from '../encrypted-ids.ts'

/** Begins no content of a Responses upstream. */
const MARK = 'thinking:'
/** With or without the letters of its origin. */
const SIGNATURE = /^sig(?:[a-z]{4})?_/

/** The content for a `thinking` or `redacted_thinking` block. */
export function sealThinking(block: Members): string {
  return MARK + JSON.stringify(block)
}

/** The block of decrypted content; null for what is of another wire. */
export function openThinking(content: unknown): Members | null {
  return typeof content === 'string' && content.startsWith(MARK) ? parsedMembers(content.slice(MARK.length)) : null
}

/** The signature, or the data of redacted thinking, for the client. Never empty: clients leave out a block without one. */
export function sealSignature(signature: string, ids: SealingIds): string {
  return ids.seal('sig', MARK + signature)
}

/** Null for what was not sealed for this subscription: another service signed it, and no upstream of ours could read it. */
export function openSignature(sealed: unknown, ids: Ids): string | null {
  if (typeof sealed !== 'string' || !SIGNATURE.test(sealed)) return null
  const plain = ids.decrypt(sealed)
  return plain === sealed || !plain.startsWith(MARK) ? null : plain.slice(MARK.length)
}
