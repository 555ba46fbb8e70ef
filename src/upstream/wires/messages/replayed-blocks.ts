/** The turns of a native request with what its upstream gave: ids, signatures and the content that only it reads. */
import { isMembers, own, ownText, type Members } from '../allowlist.ts'
import type { Ids } from '../encrypted-ids.ts'
import { restoreIds } from '../upstream-body.ts'
import { REPLAYED } from './message-allowed-members.ts'
import { openSignature } from './sealed-thinking.ts'

/** What the wire accepts as the id of a call. */
const CALL_ID = /^[A-Za-z0-9_-]+$/

/** The id for the wire, the same for a call and its result. */
export function wireId(id: string): string {
  return CALL_ID.test(id) ? id : `call_${Buffer.from(id).toString('base64url')}`
}

/** Changes the blocks in place and leaves out thinking that another service signed. */
export function restoredTurns(messages: readonly Members[], ids: Ids): Members[] {
  const turns = messages.map((message) => {
    const content = own(message, 'content')
    if (!Array.isArray(content)) return message
    return { ...message, content: (content as unknown[]).filter((block) => !isMembers(block) || restore(block, ids)) }
  })
  // Without its thinking a turn may have nothing. That of the system may change settings alone.
  return turns.filter(({ content, output_config: settings }) => !Array.isArray(content) || content.length > 0 || isMembers(settings))
}

/** False for thinking that cannot be restored. */
function restore(block: Members, ids: Ids): boolean {
  const type = own(block, 'type')
  if (type === 'thinking' || type === 'redacted_thinking') {
    const member = type === 'thinking' ? 'signature' : 'data'
    const opened = openSignature(own(block, member), ids)
    if (opened !== null) ids.opened.set(block, ownText(block, member))
    block[member] = opened
    return opened !== null
  }
  restoreIds(block, REPLAYED, ids)
  // Our answers have it where there are none.
  if (block['citations'] === null) delete block['citations']
  for (const name of ['id', 'tool_use_id']) if (typeof own(block, name) === 'string') block[name] = wireId(ownText(block, name))
  for (const name of ['content', 'citations']) {
    const entries = own(block, name)
    for (const entry of Array.isArray(entries) ? (entries as unknown[]) : []) if (isMembers(entry)) restoreIds(entry, REPLAYED, ids)
  }
  return true
}
