/** Allowlists of the content blocks and deltas of a message, by type. Everything else is dropped. */
import {
  id,
  isMembers,
  list,
  number,
  object,
  oneOf,
  or,
  own,
  ownText,
  parsedMembers,
  tagged,
  text,
  type Clean,
  type Members,
} from '../allowlist.ts'
import type { Ids } from '../encrypted-ids.ts'
import { STOP_REASONS, type Stop } from './message-object.ts'
import { sealSignature } from './sealed-thinking.ts'

const encrypted = id('enc_')
const place = { cited_text: or(text, ''), document_index: or(number, 0), document_title: or(text, null), file_id: () => null }

const citation = tagged({
  char_location: object({ type: text, ...place, start_char_index: or(number, 0), end_char_index: or(number, 0) }),
  page_location: object({ type: text, ...place, start_page_number: or(number, 0), end_page_number: or(number, 0) }),
  content_block_location: object({ type: text, ...place, start_block_index: or(number, 0), end_block_index: or(number, 0) }),
  web_search_result_location: object({
    type: text,
    cited_text: or(text, ''),
    encrypted_index: or(encrypted, ''),
    title: or(text, null),
    url: or(text, ''),
  }),
  search_result_location: object({
    type: text,
    cited_text: or(text, ''),
    search_result_index: or(number, 0),
    source: or(text, ''),
    title: or(text, null),
    start_block_index: or(number, 0),
    end_block_index: or(number, 0),
  }),
})

/** Some servers send the object as its JSON. */
const input: Clean = (value) => {
  if (typeof value !== 'string') return isMembers(value) ? value : {}
  return parsedMembers(value) ?? {}
}
const caller = () => ({ type: 'direct' })
const freshId =
  (prefix: string): Clean =>
  (value, ids) =>
    id(prefix)(value, ids) ?? ids.fresh(prefix)
const signature: Clean = (value, ids) => sealSignature(typeof value === 'string' ? value : '', ids)

const searchResult = tagged({
  web_search_result: object({
    type: text,
    title: or(text, ''),
    url: or(text, ''),
    page_age: or(text, null),
    encrypted_content: or(encrypted, ''),
  }),
})
const searchError = object({ type: oneOf('web_search_tool_result_error'), error_code: or(text, 'unavailable') })
const toolReferences = object({
  type: oneOf('tool_search_tool_search_result'),
  tool_references: or(list(tagged({ tool_reference: object({ type: text, tool_name: or(text, '') }) })), []),
})

/** A content block of an answer. The `input` of a tool is the client's, or of its tool's form: it passes whole. */
export const contentBlock = tagged({
  text: object({ type: text, text: or(text, ''), citations: or(list(citation), null) }),
  thinking: object({ type: text, thinking: or(text, ''), signature }),
  redacted_thinking: object({ type: text, data: signature }),
  tool_use: object({ type: text, id: freshId('toolu_'), name: or(text, ''), toolset_name: text, input, caller }),
  server_tool_use: object({ type: text, id: freshId('srvtoolu_'), name: or(text, ''), input, caller }),
  web_search_tool_result: object({
    type: text,
    tool_use_id: id('srvtoolu_'),
    content: (value, ids) => list(searchResult)(value, ids) ?? searchError(value, ids) ?? [],
    caller,
  }),
  tool_search_tool_result: object({ type: text, tool_use_id: id('srvtoolu_'), content: or(toolReferences, {}) }),
})

const edit = (counted: string) => object({ type: text, [counted]: or(number, 0), cleared_input_tokens: or(number, 0) })
const appliedEdits = tagged({
  clear_tool_uses_20250919: edit('cleared_tool_uses'),
  clear_thinking_20251015: edit('cleared_thinking_turns'),
})
const contextManagement = object({ applied_edits: or(list(appliedEdits), []) })

/** What the server cleared from the context, where it tells that: a member of the messages of Anthropic's beta, and of the delta at their end. */
export function contextMembers(given: Members, ids: Ids): Members {
  const managed = own(given, 'context_management')
  return managed === undefined ? {} : { context_management: contextManagement(managed, ids) ?? null }
}

/** A delta of a block. The one of a signature is not among them: signatures are sealed whole. */
export const blockDelta = tagged({
  text_delta: object({ type: text, text: or(text, '') }),
  // Tokens are told of thinking that is not shown.
  thinking_delta: object({ type: text, thinking: or(text, ''), estimated_tokens: number }),
  input_json_delta: object({ type: text, partial_json: or(text, '') }),
  citations_delta: object({ type: text, citation }),
})

/** The members of replayed blocks, and of the entries of `content` and `citations` in them, that were encrypted for the client. */
export const REPLAYED = ['id', 'tool_use_id', 'encrypted_content', 'encrypted_index'] as const

/** How a message ended. A reason that is not known is never told as success. `calls`: whether it has calls of tools. */
export function stopOf(message: Members, calls: boolean): Stop {
  const reason = own(message, 'stop_reason') ?? (calls ? 'tool_use' : 'end_turn')
  const sequence = ownText(message, 'stop_sequence')
  return { reason: STOP_REASONS.find((known) => known === reason) ?? 'max_tokens', sequence: sequence === '' ? null : sequence }
}

/** The blocks of a whole message. An empty text is left out: clients, and the next request, refuse it. */
export function cleanContent(content: readonly unknown[], ids: Ids): Members[] {
  return content
    .map((block) => contentBlock(block, ids))
    .filter((block): block is Members => isMembers(block) && !(block['type'] === 'text' && block['text'] === ''))
}
