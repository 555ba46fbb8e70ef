/**
 * The documented members of requests on each wire (OpenAI's and Anthropic's API references, and what the makers of open models document for chat:
 * `reasoning`, `thinking`, `enable_thinking`). Upstreams get no others by default: servers that compare names
 * without case take `Model` or `MAX_TOKENS` for the members that the gateway sets, and vendors route and charge by members of their own.
 */
import type { WireName } from '../wires/wire.ts'

const names = (list: string): string[] => list.trim().split(/\s+/)

const SHARED =
  names(`metadata parallel_tool_calls prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier service_tier store
  stream stream_options temperature tool_choice tools top_logprobs top_p user frequency_penalty presence_penalty`)

export const DOCUMENTED_MEMBERS: Record<WireName, ReadonlySet<string>> = {
  chat: new Set([
    ...SHARED,
    ...names(`messages audio function_call functions logit_bias logprobs max_completion_tokens max_tokens modalities n prediction
      reasoning_effort response_format seed stop verbosity web_search_options reasoning thinking enable_thinking`),
  ]),
  responses: new Set([
    ...SHARED,
    ...names('input context_management include instructions max_output_tokens max_tool_calls prompt reasoning text truncation'),
  ]),
  messages: new Set(
    names(`cache_control context_management max_tokens messages metadata output_config output_format service_tier stop_sequences stream
      system temperature thinking tool_choice tools top_k top_p`),
  ),
}

/** What OpenAI's own servers and Azure's refuse in chat, of the members and marks in parts that others document. In the form of an entry of `drop`. */
export const REFUSED_BY_OPENAI: readonly string[] = names('chat:reasoning chat:thinking chat:enable_thinking chat:cache_control')

/**
 * Members whose value the gateway decides, that replace one of those at some server (`n_predict`), or that need storage on our side. No
 * upstream's settings may name them.
 */
export const DECIDED_MEMBERS: readonly string[] =
  names(`model messages input stream n max_tokens max_completion_tokens max_output_tokens n_predict background
  conversation previous_response_id`)

/** Names that servers which ignore case cannot take for others: those of the wires have this form. */
export function isPlainName(name: string): boolean {
  return /^[a-z][a-z0-9_]*$/.test(name)
}
