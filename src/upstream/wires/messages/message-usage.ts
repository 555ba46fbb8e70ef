/** Usage on the Messages wire, whose `input_tokens` are without the cached ones, and on the Responses wire, where they include them. */
import { readUsage } from '../../usage/reported-usage.ts'
import { isMembers, number, object, or, own, type Members } from '../allowlist.ts'
import type { Ids } from '../encrypted-ids.ts'

const cacheCreation = object({ ephemeral_5m_input_tokens: or(number, 0), ephemeral_1h_input_tokens: or(number, 0) })
const serverTools = object({ web_search_requests: or(number, 0), web_fetch_requests: or(number, 0) })

/** The `usage` of an upstream's message in the members of the Responses wire; null unless it tells both counts. */
export function inclusiveUsage(usage: unknown): Members | null {
  if (!isMembers(usage)) return null
  const count = (name: string) => (typeof own(usage, name) === 'number' ? (own(usage, name) as number) : 0)
  if (typeof own(usage, 'output_tokens') !== 'number') return null
  const details = own(usage, 'output_tokens_details')
  const thinking = isMembers(details) ? own(details, 'thinking_tokens') : 0
  const [read, written] = [count('cache_read_input_tokens'), count('cache_creation_input_tokens')]
  const input = count('input_tokens') + read + written
  // No prompt is empty: it was not counted.
  if (input === 0) return null
  const output = count('output_tokens')
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: read, cache_write_tokens: written },
    output_tokens: output,
    output_tokens_details: { reasoning_tokens: typeof thinking === 'number' ? thinking : 0 },
    total_tokens: input + output,
  }
}

/** `usage` of a Responses object in the members of the Messages wire. */
export function messageUsage(usage: unknown): Members {
  const { input, cachedInput, output } = readUsage(usage) ?? { input: 0, cachedInput: 0, output: 0 }
  const details = isMembers(usage) ? usage : {}
  const written = detailOf(details, 'input_tokens_details', 'cache_write_tokens')
  const created = Math.min(written, input - cachedInput)
  return {
    input_tokens: input - cachedInput - created,
    cache_creation_input_tokens: created,
    cache_read_input_tokens: cachedInput,
    output_tokens: output,
    output_tokens_details: { thinking_tokens: detailOf(details, 'output_tokens_details', 'reasoning_tokens') },
    server_tool_use: null,
  }
}

/** The `usage` of an upstream's message for the client: its counts, and what else the wire defines. */
export function cleanUsage(usage: Members, ids: Ids): Members {
  return {
    ...messageUsage(inclusiveUsage({ output_tokens: 0, ...usage })),
    server_tool_use: serverTools(usage['server_tool_use'], ids) ?? null,
    cache_creation: cacheCreation(usage['cache_creation'], ids) ?? null,
  }
}

function detailOf(usage: Members, holder: string, name: string): number {
  const details = usage[holder]
  const value = isMembers(details) ? details[name] : 0
  return typeof value === 'number' ? value : 0
}
