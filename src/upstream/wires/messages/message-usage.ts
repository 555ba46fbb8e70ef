/** Usage on the Messages wire, whose `input_tokens` are without the cached ones, and on the Responses wire, where they include them. */
import { countOf, readUsage } from '../../usage/reported-usage.ts'
import { isMembers, object, or, own, type Clean, type Members } from '../allowlist.ts'
import type { Ids } from '../encrypted-ids.ts'

const count: Clean = or(countOf, 0)
const cacheCreation = object({ ephemeral_5m_input_tokens: count, ephemeral_1h_input_tokens: count })
const serverTools = object({ web_search_requests: count, web_fetch_requests: count })

/** The iterations of a request whose tokens are billed beside its counts. */
const APART: unknown[] = ['compaction', 'advisor_message']
const INPUT = ['input_tokens', 'cache_read_input_tokens', 'cache_creation_input_tokens']

const countsOf = (usage: Members, names: string[]): number => names.reduce((sum, name) => sum + (countOf(own(usage, name)) ?? 0), 0)
const inputOf = (usage: Members): number => countsOf(usage, INPUT)

/**
 * What a stream reported so far, and a later report of it: some servers count the prompt at the beginning alone and tell 0 at the end. The larger output
 * counts, and the report with the larger sum of the input. What is no count changes nothing.
 */
function laterUsage(reported: Members, later: unknown): Members {
  if (!isMembers(later)) return reported
  const given = Object.entries(later).filter(([, value]) => (typeof value === 'number' ? countOf(value) !== null : value !== null))
  const merged: Members = { ...reported, ...Object.fromEntries(given) }
  if (inputOf(merged) < inputOf(reported)) for (const name of INPUT) merged[name] = countOf(own(reported, name)) ?? 0
  const output = Math.max(...[merged, reported].map((usage) => countOf(own(usage, 'output_tokens')) ?? -1))
  return output < 0 ? merged : { ...merged, output_tokens: output }
}

/** The `usage` of an upstream's message in the members of the Responses wire; null unless it tells both, as counts. */
export function inclusiveUsage(usage: unknown): Members | null {
  if (!isMembers(usage)) return null
  const output = countOf(own(usage, 'output_tokens'))
  const isFaulty = (name: string) => typeof own(usage, name) === 'number' && countOf(own(usage, name)) === null
  if (output === null || INPUT.some(isFaulty)) return null
  const details = own(usage, 'output_tokens_details')
  const thinking = isMembers(details) ? countOf(own(details, 'thinking_tokens')) : 0
  // No prompt is empty: it was not counted.
  if (inputOf(usage) === 0) return null
  const iterations = own(usage, 'iterations')
  const apart = Array.isArray(iterations) ? (iterations as unknown[]).filter(isMembers).filter(({ type }) => APART.includes(type)) : []
  const sum = (...names: string[]) => [usage, ...apart].reduce((total, one) => total + countsOf(one, names), 0)
  const [input, allOutput] = [sum(...INPUT), sum('output_tokens')]
  return {
    input_tokens: input,
    input_tokens_details: { cached_tokens: sum('cache_read_input_tokens'), cache_write_tokens: sum('cache_creation_input_tokens') },
    output_tokens: allOutput,
    output_tokens_details: { reasoning_tokens: thinking ?? 0 },
    total_tokens: input + allOutput,
  }
}

/** The usage that the events of one stream report. */
export type StreamUsage = {
  /** Of `message_start`. */
  begun(usage: unknown): void
  /** Of a `message_delta`. */
  told(usage: unknown): void
  /** All that was reported. */
  all(): Members
  /** In the members of the Responses wire, or null. The output that a stream begins with is no report: it is 0. */
  soFar(): Members | null
  /** The same once the output was reported, and null before. */
  whole(): Members | null
}

export function openStreamUsage(): StreamUsage {
  let reported: Members = {}
  let hasOutput = false
  const whole = () => (hasOutput ? inclusiveUsage(reported) : null)
  return {
    begun: (usage) => void (reported = laterUsage(reported, usage)),
    told(usage) {
      hasOutput ||= isMembers(usage) && countOf(usage['output_tokens']) !== null
      reported = laterUsage(reported, usage)
    },
    all: () => reported,
    soFar: () => whole() ?? inclusiveUsage({ ...reported, output_tokens: 0 }),
    whole,
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
  return (isMembers(details) ? countOf(details[name]) : 0) ?? 0
}
