/** What a model cited and the results of its hosted tools, in blocks of the Messages wire that a client replays: rebuilt, because upstreams get them unread. */
import { isMembers, own, type Members } from '../wires/allowlist.ts'

/** The member of a block that holds such objects. */
const HOLDERS: Record<string, string> = {
  text: 'citations',
  web_search_tool_result: 'content',
  tool_search_tool_result: 'content',
}
const CITED = ['cited_text', 'document_index', 'document_title']
/** The documented members of the objects by type. The address of a search result is text: no upstream fetches it. */
const ENTRIES: Record<string, readonly string[]> = {
  char_location: [...CITED, 'start_char_index', 'end_char_index'],
  page_location: [...CITED, 'start_page_number', 'end_page_number'],
  content_block_location: [...CITED, 'start_block_index', 'end_block_index'],
  web_search_result_location: ['cited_text', 'encrypted_index', 'title', 'url'],
  search_result_location: ['cited_text', 'search_result_index', 'source', 'title', 'start_block_index', 'end_block_index'],
  web_search_result: ['title', 'url', 'page_age', 'encrypted_content'],
  web_search_tool_result_error: ['error_code'],
  tool_search_tool_search_result: ['tool_references'],
  tool_search_tool_result_error: ['error_code', 'error_message'],
  tool_reference: ['tool_name'],
}

/** The name of the member of a block that `rebuiltEntries` is for; undefined for a block without one. */
export function holderOfEntries(type: string): string | undefined {
  return Object.hasOwn(HOLDERS, type) ? HOLDERS[type] : undefined
}

/** The value from the documented members of its objects; undefined for one of an unknown type, which a list leaves out. */
export function rebuiltEntries(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rebuiltEntries).filter((entry) => entry !== undefined)
  if (!isMembers(value)) return value
  const type = own(value, 'type')
  if (typeof type !== 'string' || !Object.hasOwn(ENTRIES, type)) return undefined
  const built: Members = { type }
  for (const name of ENTRIES[type] ?? []) {
    const member = rebuiltEntries(own(value, name))
    if (member !== undefined) built[name] = member
  }
  return built
}
