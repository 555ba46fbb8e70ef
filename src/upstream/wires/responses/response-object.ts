/**
 * The Response object that clients get: the upstream's output and usage, our ids and model name, and the members of the request that the wire
 * repeats.
 */
import type { Failure } from '../../../domain/errors.ts'
import type { Ids } from '../encrypted-ids.ts'
import type { OutputMeter } from '../../usage/output-meter.ts'
import { outputItem } from './response-allowed-members.ts'
import { offeredToolMembers } from '../../policy/hosted-tools.ts'
import { isMembers, oneOf, own, type Members } from '../allowlist.ts'
import { responseUsage } from '../../usage/reported-usage.ts'
import { MODEL } from '../model-name.ts'

/** The members of a request that its response repeats, with their defaults. Null is the wire's form of absent. */
const REPEATED: Members = {
  instructions: null,
  max_output_tokens: null,
  max_tool_calls: null,
  metadata: {},
  parallel_tool_calls: true,
  presence_penalty: 0,
  frequency_penalty: 0,
  prompt_cache_key: null,
  reasoning: null,
  safety_identifier: null,
  store: false,
  temperature: 1,
  text: { format: { type: 'text' } },
  tool_choice: 'auto',
  tools: [],
  top_logprobs: 0,
  top_p: 1,
  truncation: 'disabled',
}

/** Repeated members stay in memory as long as the stream: above this size, instructions and tools are left out. */
const MAX_REPEATED_BYTES = 256 * 1024

export type RepeatedMembers = Members

/**
 * The members that every response to this request repeats, with the tools that every upstream gets. `allow`: what all upstreams allow.
 * `createdAt`: of the request, in epoch seconds, because an upstream's clock tells it apart.
 */
export function repeatedMembers(body: Members, allow: ReadonlySet<string>, createdAt: number): RepeatedMembers {
  // A copy, because V8 makes a slow dictionary of an object that gets so many members one by one.
  const repeated: Members = { created_at: createdAt, ...REPEATED }
  for (const name in REPEATED) repeated[name] = own(body, name) ?? REPEATED[name]
  if (own(body, 'tools')) Object.assign(repeated, offeredTools(repeated, allow))
  // With the members of a function that a response must have.
  repeated['tools'] = (repeated['tools'] as Members[]).map((tool) =>
    tool['type'] === 'function' ? { description: null, parameters: null, strict: true, ...tool } : tool,
  )
  const size = JSON.stringify(repeated).length
  return size > MAX_REPEATED_BYTES ? { ...repeated, instructions: null, tools: [], metadata: {}, text: REPEATED['text'] } : repeated
}

/** The same where upstreams of another wire answer, which get no hosted tools. Responses are not stored, on any of them. */
export function translatedMembers(repeated: RepeatedMembers): RepeatedMembers {
  return { ...repeated, ...offeredTools(repeated, new Set()), store: false }
}

function offeredTools({ tools, tool_choice }: Members, allow: ReadonlySet<string>): Members {
  const offered = offeredToolMembers('responses', { tools, tool_choice }, { allow, drop: new Set() })
  return { tools: offered['tools'] ?? [], tool_choice: offered['tool_choice'] ?? REPEATED['tool_choice'] }
}

export type Status = 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'queued'

const serviceTier = oneOf('auto', 'default', 'flex', 'scale', 'priority')
const incompleteReason = oneOf('max_output_tokens', 'content_filter')

/** The upstream's response with the time of its completion, which is only used for the status `completed`. `now`: epoch seconds. */
export function completed(given: Members, now: () => number): Members {
  return { ...given, completed_at: now() }
}

/** `id`: the upstream's, if it gave one. */
export function responseId(id: unknown, ids: Ids): string {
  return typeof id === 'string' && id !== '' ? ids.encrypt('resp_', id) : ids.fresh('resp_')
}

/** A response with every member of the wire. `output` replaces the output of `given`; `failure` becomes its `error`. */
export function responseOf(
  given: Members,
  id: string,
  status: Status,
  repeated: RepeatedMembers,
  ids: Ids,
  output: unknown = undefined,
  failure: Failure | null = null,
): Members {
  const details = isMembers(given['incomplete_details']) ? incompleteReason(given['incomplete_details']['reason'], ids) : undefined
  return {
    id,
    object: 'response',
    created_at: repeated['created_at'],
    status,
    access_programs: null,
    background: false,
    completed_at: status === 'completed' ? given['completed_at'] : null,
    // Codex treats `context_length_exceeded` and `rate_limit_exceeded` apart from other codes, which it retries.
    error: failure && { code: failure.status < 500 ? failure.code : 'server_error', message: failure.message },
    incomplete_details: status === 'incomplete' ? { reason: details ?? 'max_output_tokens' } : null,
    model: MODEL,
    output: output ?? completeItems(given['output'], ids, ids.fresh) ?? [],
    previous_response_id: null,
    ...repeated,
    service_tier: serviceTier(given['service_tier'], ids) ?? 'default',
    usage: responseUsage(given['usage']),
  }
}

/**
 * The known items of an upstream's output, with what the wire requires of each where the upstream leaves it out. `fresh`: an id for one without, by its prefix
 * and its place at the upstream. Undefined where there is no output.
 */
export function completeItems(output: unknown, ids: Ids, fresh: (prefix: string, index: number) => string): Members[] | undefined {
  if (!Array.isArray(output)) return undefined
  return (output as unknown[]).flatMap((one, index) => {
    const cleaned = outputItem(one, ids)
    return isMembers(cleaned) ? [completeItem(cleaned, 'completed', (prefix) => fresh(prefix, index))] : []
  })
}

/** Ids by the type of their item. Results of tools that the client runs are not among the outputs. */
const PREFIXES: Record<string, string> = { message: 'msg_', reasoning: 'rs_', function_call: 'fc_', custom_tool_call: 'ctc_' }
const WITHOUT_STATUS = ['reasoning', 'compaction', 'context_compaction', 'mcp_list_tools', 'mcp_approval_request']

/** One item with its id, its status if it has none, and for a call the id that its result refers to. */
export function completeItem(one: Members, status: 'in_progress' | 'completed', fresh: (prefix: string) => string): Members {
  const type = String(one['type'])
  const id = one['id'] ?? fresh(PREFIXES[type] ?? 'item_')
  const needsCallId = type === 'function_call' || type === 'custom_tool_call'
  return {
    id,
    ...(WITHOUT_STATUS.includes(type) ? {} : { status }),
    ...(needsCallId ? { call_id: id } : {}),
    ...one,
  }
}

/** Adds all text of cleaned items to the meter. */
export function meterItems(output: unknown, meter: OutputMeter): void {
  if (!Array.isArray(output)) return
  for (const entry of output as unknown[]) {
    if (!isMembers(entry)) continue
    for (const name of ['name', 'arguments', 'input', 'code']) if (typeof entry[name] === 'string') meter.addText(entry[name])
    for (const name of ['content', 'summary']) {
      for (const one of Array.isArray(entry[name]) ? (entry[name] as unknown[]) : []) {
        if (isMembers(one)) meter.addText(typeof one['text'] === 'string' ? one['text'] : String(one['refusal'] ?? ''))
      }
    }
  }
}
