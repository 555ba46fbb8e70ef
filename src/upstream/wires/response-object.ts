/**
 * The Response object as it leaves us: the upstream's output and usage, our ids and model, and what the client asked for, as the client
 * wrote it.
 */
import type { Failure } from '../../domain/errors.ts'
import type { Ids } from './encrypted-ids.ts'
import type { Meter } from '../usage/output-meter.ts'
import { outputItem } from './response-items.ts'
import { isMembers, list, oneOf, type Members } from './member-allowlist.ts'
import { responseUsage } from '../usage/reported-usage.ts'
import { MODEL } from './wire.ts'

/** Members of a request that a response repeats, with what stands there when the client named none. Null is what the wire calls absent. */
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

/** What is repeated is kept as long as the stream lasts: beyond this much text, instructions and tools are left out. */
const LONGEST_ECHO = 256 * 1024

export type Echo = Members

/** What every response to this request repeats. */
export function echoOf(body: Members): Echo {
  const echo: Members = {}
  for (const [name, fallback] of Object.entries(REPEATED)) {
    const value = Object.hasOwn(body, name) ? body[name] : undefined
    echo[name] = value ?? fallback
  }
  const size = JSON.stringify(echo).length
  return size > LONGEST_ECHO ? { ...echo, instructions: null, tools: [], metadata: {}, text: REPEATED['text'] } : echo
}

export type Status = 'in_progress' | 'completed' | 'incomplete' | 'failed' | 'queued'

const items = list(outputItem)
const serviceTier = oneOf('auto', 'default', 'flex', 'scale', 'priority')
const incompleteReason = oneOf('max_output_tokens', 'content_filter')

/** What stays the same over a stream. */
export type ResponseHead = { id: string; created_at: number }

export function openResponse(given: Members, ids: Ids, now: number): ResponseHead {
  const { id, created_at: createdAt } = given
  return {
    id: typeof id === 'string' && id !== '' ? ids.out('resp_', id) : ids.fresh('resp_'),
    created_at: typeof createdAt === 'number' ? createdAt : now,
  }
}

/** A response with every member of the wire. `output` and `error` as the caller found them. */
export function responseOf(
  given: Members,
  head: ResponseHead,
  status: Status,
  echo: Echo,
  ids: Ids,
  output: unknown = undefined,
  failure: Failure | null = null,
): Members {
  const details = isMembers(given['incomplete_details']) ? incompleteReason(given['incomplete_details']['reason'], ids) : undefined
  return {
    id: head.id,
    object: 'response',
    created_at: head.created_at,
    status,
    background: false,
    completed_at: status === 'completed' && typeof given['completed_at'] === 'number' ? given['completed_at'] : null,
    error: failure && responseError(failure),
    incomplete_details: status === 'incomplete' ? { reason: details ?? 'max_output_tokens' } : null,
    model: MODEL,
    output: output ?? items(given['output'], ids) ?? [],
    previous_response_id: null,
    ...echo,
    service_tier: serviceTier(given['service_tier'], ids) ?? null,
    usage: responseUsage(given['usage']),
  }
}

/**
 * The `error` of a failed response. Codex knows `context_length_exceeded` and `rate_limit_exceeded` apart from the rest and tries those
 * again.
 */
function responseError(failure: Failure): Members {
  return { code: failure.status < 500 ? failure.code : 'server_error', message: failure.message }
}

/** Tells the meter all text of cleaned items. */
export function measureItems(output: unknown, meter: Meter): void {
  if (!Array.isArray(output)) return
  for (const entry of output as unknown[]) {
    if (!isMembers(entry)) continue
    for (const name of ['name', 'arguments', 'input', 'code']) if (typeof entry[name] === 'string') meter.plain(entry[name])
    for (const name of ['content', 'summary']) {
      for (const one of Array.isArray(entry[name]) ? (entry[name] as unknown[]) : []) {
        if (isMembers(one)) meter.plain(typeof one['text'] === 'string' ? one['text'] : String(one['refusal'] ?? ''))
      }
    }
  }
}
