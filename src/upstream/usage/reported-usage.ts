/** Reads the `usage` that upstreams report, on both wires and in the dialects of vendors, and writes the `usage` that clients get. */
import { isMembers, type Members } from '../wires/allowlist.ts'
import type { Usage } from '../../domain/token-windows.ts'

/** More than any model takes or gives. A count above it is a fault of the upstream, and would use up the week of a tenant. */
const MAX_TOKENS = 100_000_000

/** A count of tokens: a whole number from 0 to `MAX_TOKENS`; null for anything else. */
export function countOf(value: unknown): number | null {
  return typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 && value <= MAX_TOKENS ? value : null
}

function within(value: Members, name: string): Members {
  const inner = value[name]
  return isMembers(inner) ? inner : {}
}

/**
 * Reads a `usage` object. Null unless input and output are counts (integers from 0 to `MAX_TOKENS`). A total above their sum counts as output, because some
 * upstreams report reasoning apart from the output.
 */
export function readUsage(value: unknown): Usage | null {
  if (!isMembers(value)) return null
  const input = countOf(value['prompt_tokens'] ?? value['input_tokens'])
  const output = countOf(value['completion_tokens'] ?? value['output_tokens'])
  if (input === null || output === null) return null
  const cached =
    countOf(within(value, 'prompt_tokens_details')['cached_tokens']) ??
    countOf(within(value, 'input_tokens_details')['cached_tokens']) ??
    countOf(value['prompt_cache_hit_tokens']) ??
    countOf(value['cached_tokens']) ??
    0
  const total = countOf(value['total_tokens']) ?? 0
  return { input, cachedInput: Math.min(cached, input), output: Math.max(output, total - input) }
}

/** The `usage` of a chat completion; undefined when the upstream reported none. */
export function chatUsage(value: unknown): Members | undefined {
  const usage = readUsage(value)
  if (!usage || !isMembers(value)) return undefined
  const input = within(value, 'prompt_tokens_details')
  const output = { ...within(value, 'output_tokens_details'), ...within(value, 'completion_tokens_details') }
  return {
    prompt_tokens: usage.input,
    completion_tokens: usage.output,
    total_tokens: usage.input + usage.output,
    prompt_tokens_details: { cached_tokens: usage.cachedInput, audio_tokens: countOf(input['audio_tokens']) ?? 0 },
    completion_tokens_details: {
      reasoning_tokens: countOf(output['reasoning_tokens']) ?? 0,
      audio_tokens: countOf(output['audio_tokens']) ?? 0,
      accepted_prediction_tokens: countOf(output['accepted_prediction_tokens']) ?? 0,
      rejected_prediction_tokens: countOf(output['rejected_prediction_tokens']) ?? 0,
    },
  }
}

/** The `usage` of a response, every member present; null when the upstream reported none. */
export function responseUsage(value: unknown): Members | null {
  const usage = readUsage(value)
  if (!usage || !isMembers(value)) return null
  const output = { ...within(value, 'completion_tokens_details'), ...within(value, 'output_tokens_details') }
  return {
    input_tokens: usage.input,
    input_tokens_details: {
      cached_tokens: usage.cachedInput,
      cache_write_tokens:
        countOf({ ...within(value, 'prompt_tokens_details'), ...within(value, 'input_tokens_details') }['cache_write_tokens']) ?? 0,
    },
    output_tokens: usage.output,
    output_tokens_details: { reasoning_tokens: countOf(output['reasoning_tokens']) ?? 0 },
    total_tokens: usage.input + usage.output,
  }
}

/** The `usage` of a chat completion whose upstream reported none. */
export function estimatedChatUsage({ input, output }: Usage): Members | undefined {
  return chatUsage({ prompt_tokens: input, completion_tokens: output })
}

/** The `usage` of a response whose upstream reported none. */
export function estimatedResponseUsage({ input, output }: Usage): Members | null {
  return responseUsage({ input_tokens: input, output_tokens: output })
}
