/**
 * The signature of a thinking block: what a client replays so that the model can continue its reasoning. It carries the id and the encrypted
 * content of the reasoning item, both of which the answer has encrypted for the subscription.
 */
import { own, ownText, type Members } from '../../wires/allowlist.ts'

const BEGINS = /^rs_[\w-]{1,4096}\.[a-z]{1,16}_/
/** Searched for, because a pattern that matches megabytes of a class of characters overflows the stack of the regular expression. */
const FOREIGN = /[^\w-]/

/** The signature of a finished reasoning item. Never empty: clients leave out a block without one. */
export function signatureOf(item: Members): string {
  const content = ownText(item, 'encrypted_content')
  const id = ownText(item, 'id') || 'rs_0'
  return content === '' ? id : `${id}.${content}`
}

/** The reasoning item of a replayed `thinking` or `redacted_thinking` block; null for one that another service signed, which nobody here can read. */
export function replayedReasoning(block: Members): Members | null {
  const signature = ownText(block, own(block, 'type') === 'thinking' ? 'signature' : 'data')
  const end = signature.indexOf('.')
  const [id, content] = [signature.slice(0, end), signature.slice(end + 1)]
  if (!BEGINS.test(signature) || FOREIGN.test(content)) return null
  const text = ownText(block, 'thinking')
  return { type: 'reasoning', id, summary: text === '' ? [] : [{ type: 'summary_text', text }], encrypted_content: content }
}
