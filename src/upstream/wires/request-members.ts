/**
 * The documented members of requests on both wires (OpenAI's API reference). Upstreams get no others: servers that compare names without case
 * take `Model` or `MAX_TOKENS` for the members that the gateway sets, and vendors route and charge by members of their own.
 */
import { isMembers, own, type Members } from './allowlist.ts'
import type { WireName } from './wire.ts'

const SHARED = `metadata parallel_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier service_tier store stream stream_options temperature
  tool_choice tools top_logprobs top_p user frequency_penalty presence_penalty`

const names = (list: string): string[] => list.split(/\s+/)

export const REQUEST_MEMBERS: Record<WireName, readonly string[]> = {
  chat: names(`messages audio function_call functions logit_bias logprobs max_completion_tokens max_tokens modalities n prediction reasoning_effort
    response_format seed stop verbosity web_search_options ${SHARED}`),
  responses: names(`input background context_management conversation include instructions max_output_tokens max_tool_calls previous_response_id
    prompt reasoning text truncation ${SHARED}`),
}

/** The documented members of a body, without `except`. */
export function documentedMembers(wire: WireName, body: Members, except: readonly string[]): Members {
  const kept: Members = {}
  for (const name of REQUEST_MEMBERS[wire]) {
    const value = own(body, name)
    if (value !== undefined && !except.includes(name)) kept[name] = value
  }
  return kept
}

/** The documented member of `stream_options` that clients decide. */
export function obfuscationOf(options: unknown): Members {
  const chosen = isMembers(options) ? own(options, 'include_obfuscation') : undefined
  return chosen === undefined ? {} : { include_obfuscation: chosen }
}
