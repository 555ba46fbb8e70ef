/** The item that stands for a compacted conversation. One of our own holds a summary, sealed for its subscription; others only their upstream can read. */
import type { Ids } from '../wires/encrypted-ids.ts'
import { ownText, type Members } from '../wires/allowlist.ts'

/** Ends the input of a request that compacts it, instead of answering. */
export const TRIGGER = 'compaction_trigger'

/** Begins no content of an upstream. */
const MARK = 'summary:'
const HEADING = 'The conversation so far was replaced by this summary of it:'

/** The item for a summary. */
export function compactionItem(summary: string, ids: Ids): Members {
  return { id: ids.fresh('cmp_'), type: 'compaction', encrypted_content: ids.encrypt('enc_', MARK + summary) }
}

/** The items, with a message in place of each summary of ours. Items that another service made stay. */
export function withSummaries(items: readonly Members[], ids: Ids): Members[] {
  return items.map((item) => {
    if (ownText(item, 'type') !== 'compaction') return item
    const content = ids.decrypt(ownText(item, 'encrypted_content'))
    return content.startsWith(MARK) ? { type: 'message', role: 'user', content: `${HEADING}\n\n${content.slice(MARK.length)}` } : item
  })
}
