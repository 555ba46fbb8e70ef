/** Tools that clients run and their items, which only the Responses wire has. Left out, an agent would silently be without its hands. */
import { own, ownText, type Members } from '../wires/allowlist.ts'
import { unsupported } from './unsupported-parameter.ts'

/** Items whose content only the service that made them can read, and calls of those tools. Items of hosted tools are left out. */
const ITEMS = new Set(
  `item_reference compaction context_compaction local_shell_call local_shell_call_output shell_call shell_call_output apply_patch_call
  apply_patch_call_output computer_call computer_call_output configuration_update`.split(/\s+/),
)
/** What the client runs only where it says so. */
const SEARCH = /^tool_search(?:_call|_output)?$/
const isOwnSearch = (holder: Members) => SEARCH.test(ownText(holder, 'type')) && own(holder, 'execution') === 'client'

/** Throws `unsupported_parameter` at `path` for an item that cannot be translated. */
export function refuseLostItem(item: Members, path: string): void {
  if (ITEMS.has(ownText(item, 'type')) || isOwnSearch(item)) throw unsupported(path)
}

const LOST: unknown[] = ['shell', 'local_shell', 'apply_patch', 'computer', 'computer_use_preview']

/** Throws `unsupported_parameter` naming the first of them of a Responses request's tools (`toolsOf`). Hosted ones are left out by the request policy. */
export function refuseLostTools(tools: unknown): void {
  const index = Array.isArray(tools) ? (tools as Members[]).findIndex((tool) => isLost(tool)) : -1
  if (index >= 0) throw unsupported(`tools[${index}]`)
}

function isLost(tool: Members): boolean {
  if (isOwnSearch(tool)) return true
  const environment = (own(tool, 'environment') ?? null) as Members | null
  return LOST.includes(own(tool, 'type')) && (environment === null || own(environment, 'type') === 'local')
}
