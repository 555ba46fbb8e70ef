/**
 * Finish reasons of chat completions: those of OpenAI's wire, and the words of other servers and model APIs for them. A reason that is not
 * known is never told as success: it becomes `length`, an answer that is not complete.
 */
const REASONS: Record<string, string> = {
  ...named('stop', 'stop stopped eos eos_token end end_turn stop_sequence complete completed'),
  ...named('tool_calls', 'tool_calls tool_call tool_use'),
  ...named('function_call', 'function_call'),
  ...named(
    'content_filter',
    'content_filter safety recitation blocklist prohibited_content spii language sensitive refusal guardrail_intervened',
  ),
}

/** The model server failed, or ended the answer itself. */
const FAILED = new Set(
  `error abort aborted cancel canceled cancelled failed failure timeout insufficient_system_resource network_error malformed_function_call
  unexpected_tool_call`.split(/\s+/),
)

function named(reason: string, words: string): Record<string, string> {
  return Object.fromEntries(words.split(' ').map((word) => [word, reason]))
}

/** The reason in OpenAI's terms; null while the choice has not ended. */
export function finishReasonOf(value: unknown): string | null {
  if (typeof value !== 'string' || value === '') return null
  const word = value.toLowerCase()
  return Object.hasOwn(REASONS, word) ? (REASONS[word] ?? null) : 'length'
}

/** Whether the reason says that the model server failed, so that the answer must end as a failure. */
export function isFailedReason(value: unknown): boolean {
  return typeof value === 'string' && FAILED.has(value.toLowerCase())
}
