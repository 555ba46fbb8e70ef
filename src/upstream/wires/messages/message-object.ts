/** The Message object of Anthropic's wire, and its events. */
import { bytesOf } from '../../sse/sse-parser.ts'
import type { Members } from '../allowlist.ts'
import { MODEL } from '../model-name.ts'

/** In the order of the wire's documentation. */
export const STOP_REASONS = [
  'end_turn',
  'max_tokens',
  'stop_sequence',
  'tool_use',
  'pause_turn',
  'refusal',
  'model_context_window_exceeded',
] as const

/** How an answer ended; `sequence` is the stop sequence that was found. */
export type Stop = { reason: (typeof STOP_REASONS)[number]; sequence: string | null }

/** A message with every member of the wire. */
export function messageOf(id: string, content: Members[], stop: Stop | null, usage: Members): Members {
  return {
    id,
    type: 'message',
    role: 'assistant',
    model: MODEL,
    content,
    ...stopMembers(stop),
    diagnostics: null,
    usage: { cache_creation: null, ...usage, inference_geo: null, service_tier: 'standard', speed: null },
  }
}

/** The members of a message, and of the delta at its end, that say how it ended. */
export function stopMembers(stop: Stop | null): Members {
  return {
    stop_reason: stop?.reason ?? null,
    stop_sequence: stop?.sequence ?? null,
    stop_details: stop?.reason === 'refusal' ? { type: 'refusal', category: null, explanation: null } : null,
    container: null,
  }
}

/** What stands before the JSON of a delta. */
export const DELTA_HEAD = 'event: content_block_delta\ndata: '

/** One event as bytes. */
export function messageEvent(event: Members): string {
  return `event: ${String(event['type'])}\ndata: ${bytesOf(JSON.stringify(event))}\n\n`
}

/** The last two events of a stream. `more`: members of the first. */
export function endEvents(stop: Stop, usage: Members, more: Members = {}): string {
  return messageEvent({ type: 'message_delta', delta: stopMembers(stop), usage, ...more }) + messageEvent({ type: 'message_stop' })
}
