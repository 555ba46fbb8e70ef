/** The body of a chat request as the body of a Responses request. */
import { isMembers, own, type Members } from '../../wires/allowlist.ts'
import type { ChatRequest } from '../../wires/chat/chat-request.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { effortOfBudget } from '../budget-effort.ts'
import { addShared } from '../shared-members.ts'
import { unsupported } from '../unsupported-parameter.ts'
import { inputItems } from './input-items.ts'
import { responsesToolMembers } from './responses-tools.ts'

const THINKING: unknown[] = ['enabled', 'adaptive', 'auto']

/** `marks`: whether content and tools keep its `cache_control`, which only the Messages wire has. Throws `unsupported_parameter`. */
export function responsesBody({ body, messages, choices }: ChatRequest, ids: Ids, marks: boolean): Members {
  if (choices > 1) throw unsupported('n')
  refuseUntranslatable(body)
  const input = inputItems(messages, ids, marks)
  const built: Members = { input, store: false, ...responsesToolMembers(body, marks) }
  addShared(body, built)
  const parallel = own(body, 'parallel_tool_calls') ?? null
  if (parallel !== null) built['parallel_tool_calls'] = parallel
  const effort = effortOf(body)
  const include = [
    ...(own(body, 'logprobs') === true ? ['message.output_text.logprobs'] : []),
    // Not every model accepts this, so it is sent only where the client reasons.
    ...(effort !== undefined || input.some(({ type }) => type === 'reasoning') ? ['reasoning.encrypted_content'] : []),
  ]
  if (include.length > 0) built['include'] = include
  if (typeof own(body, 'top_logprobs') === 'number') built['top_logprobs'] = own(body, 'top_logprobs')
  if (effort !== undefined) built['reasoning'] = { effort }
  const text = textMembers(body)
  return Object.keys(text).length === 0 ? built : { ...built, text }
}

/** Of a model that is to think and is not told how much. */
const DEFAULT_EFFORT = 'medium'

/** By OpenAI's own member, by `reasoning` (OpenRouter), or by `thinking` and `enable_thinking` of open models. Whoever wants none leaves the default to the model. */
function effortOf(body: Members): string | undefined {
  const [reasoning, thinking] = ['reasoning', 'thinking'].map((name) => (own(body, name) ?? {}) as Members) as [Members, Members]
  const named = own(body, 'reasoning_effort') ?? own(reasoning, 'effort')
  if (typeof named === 'string') return named
  const budgeted = effortOfBudget(own(reasoning, 'max_tokens')) ?? effortOfBudget(own(thinking, 'budget_tokens'))
  const asks = own(reasoning, 'enabled') === true || THINKING.includes(own(thinking, 'type')) || own(body, 'enable_thinking') === true
  return budgeted ?? (asks ? DEFAULT_EFFORT : undefined)
}

function refuseUntranslatable(body: Members): void {
  if (Object.keys((own(body, 'logit_bias') ?? {}) as Members).length > 0) throw unsupported('logit_bias')
  const modalities = own(body, 'modalities')
  if (Array.isArray(modalities) && modalities.some((one) => one !== 'text')) throw unsupported('modalities')
}

function textMembers(body: Members): Members {
  const format = own(body, 'response_format')
  const verbosity = own(body, 'verbosity')
  const schema = isMembers(format) ? own(format, 'json_schema') : undefined
  return {
    ...(isMembers(format) ? { format: isMembers(schema) ? { type: 'json_schema', ...schema } : { type: own(format, 'type') } } : {}),
    ...(typeof verbosity === 'string' ? { verbosity } : {}),
  }
}
