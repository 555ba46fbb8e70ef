/**
 * The signature of a thinking block: what a client replays so that the model can continue its reasoning. It carries the id and the encrypted
 * content of the reasoning item, both of which the answer has encrypted for the subscription.
 */
import { own, ownText, type Members } from '../../wires/allowlist.ts'

const SIGNATURE = /^(rs_[\w-]+)\.([a-z]+_[\w-]+)$/

/** The signature of a finished reasoning item. Never empty: clients leave out a block without one. */
export function signatureOf(item: Members): string {
  const content = ownText(item, 'encrypted_content')
  const id = ownText(item, 'id') || 'rs_0'
  return content === '' ? id : `${id}.${content}`
}

/** The reasoning item of a replayed `thinking` or `redacted_thinking` block; null for one that another service signed, which nobody here can read. */
export function replayedReasoning(block: Members): Members | null {
  const found = SIGNATURE.exec(ownText(block, own(block, 'type') === 'thinking' ? 'signature' : 'data'))
  if (!found) return null
  const text = ownText(block, 'thinking')
  const [, id, content] = found
  return { type: 'reasoning', id, summary: text === '' ? [] : [{ type: 'summary_text', text }], encrypted_content: content }
}
