/** The body of a Responses request as the body of a Messages request. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { chatToolMembers, toolsOf, type ChatTools } from '../responses-to-chat/chat-tools.ts'
import { refuseLostTools } from '../lost-tools.ts'
import { unsupported } from '../unsupported-parameter.ts'
import { turnsOf } from './message-turns.ts'
import { thinkingFor } from './thinking-budget.ts'

/** A prompt up to here is kept in the upstream's cache, as OpenAI's wires do by themselves. */
const CACHED = { cache_control: { type: 'ephemeral' } }

/** `limit`: output tokens; `stop`: the stop sequences of a client whose wire has them. Throws `unsupported_parameter` naming what the wire cannot express. */
export function messagesBody(body: Members, limit: number, stop: readonly string[], tools: ChatTools, ids: Ids): Members {
  refuseUntranslatable(body)
  const { system, messages, lacksThinking } = turnsOf(body, tools, ids)
  const sequences = stop.filter((sequence) => sequence.trim() !== '')
  const toolsSent = toolMembers(body, tools)
  const thinking = thinkingFor(own(body, 'reasoning'), limit)
  // The wire refuses both together.
  const refusesThinking = lacksThinking || ['any', 'tool'].includes(ownText((toolsSent['tool_choice'] ?? {}) as Members, 'type'))
  const thinks = thinking?.['type'] === 'enabled' && !refusesThinking
  const user = own(body, 'user') ?? own(body, 'safety_identifier')
  const isMarkedTool = ((toolsSent['tools'] ?? []) as Members[]).some(isMarked)
  if (!isMarkedTool && !system.some(isMarked) && !messages.some(({ content }) => (content as Members[]).some(isMarked))) {
    cacheLast(system)
    cacheLast((messages.at(-1)?.['content'] ?? []) as Members[])
  }
  return {
    ...(system.length > 0 ? { system } : {}),
    messages,
    ...toolsSent,
    ...(thinks ? { thinking } : {}),
    ...(thinking?.['type'] === 'disabled' ? { thinking } : {}),
    ...(thinks ? {} : sampling(body)),
    ...formatMember(own(body, 'text')),
    ...(sequences.length > 0 ? { stop_sequences: sequences } : {}),
    ...(typeof user === 'string' ? { metadata: { user_id: user } } : {}),
  }
}

function refuseUntranslatable(body: Members): void {
  if (isMembers(own(body, 'prompt'))) throw unsupported('prompt')
  refuseLostTools(toolsOf(body))
  for (const name of ['presence_penalty', 'frequency_penalty', 'top_logprobs']) if ((own(body, name) ?? 0) !== 0) throw unsupported(name)
  const include = own(body, 'include')
  if (Array.isArray(include) && include.includes('message.output_text.logprobs')) throw unsupported('include')
}

/** The highest temperature of the wire is 1; it takes one of the two, and neither with thinking. */
function sampling(body: Members): Members {
  const temperature = own(body, 'temperature')
  const topP = own(body, 'top_p')
  if (typeof temperature === 'number') return { temperature: Math.min(1, temperature) }
  return typeof topP === 'number' ? { top_p: topP } : {}
}

function formatMember(text: unknown): Members {
  const format = isMembers(text) ? own(text, 'format') : undefined
  const type = isMembers(format) ? own(format, 'type') : undefined
  if (type === undefined || type === 'text' || !isMembers(format)) return {}
  if (type !== 'json_schema') throw unsupported('text.format')
  return { output_config: { format: { type: 'json_schema', schema: own(format, 'schema') } } }
}

function toolMembers(body: Members, tools: ChatTools): Members {
  const { tools: functions, tool_choice: choice } = chatToolMembers(own(body, 'tool_choice'), tools)
  if (!Array.isArray(functions) || functions.length === 0) return {}
  const marks = new Map<unknown, unknown>()
  for (const tool of (own(body, 'tools') ?? []) as Members[])
    if (isMembers(own(tool, 'cache_control'))) marks.set(tools.chatName(ownText(tool, 'name'), null), own(tool, 'cache_control'))
  const declared = (functions as Members[]).map(({ function: one }) => toolOf(one as Members, marks))
  const isSerial = own(body, 'parallel_tool_calls') === false
  const chosen = choiceOf(choice) ?? (isSerial ? { type: 'auto' } : null)
  if (!chosen) return { tools: declared }
  return {
    tools: declared,
    tool_choice: isSerial && chosen['type'] !== 'none' ? { ...chosen, disable_parallel_tool_use: true } : chosen,
  }
}

function toolOf({ name, description, parameters, strict }: Members, marks: ReadonlyMap<unknown, unknown>): Members {
  return {
    name,
    ...(typeof description === 'string' ? { description } : {}),
    input_schema: { type: 'object', ...(isMembers(parameters) ? parameters : {}) },
    ...(strict === true ? { strict } : {}),
    ...(marks.has(name) ? { cache_control: marks.get(name) } : {}),
  }
}

function choiceOf(choice: unknown): Members | null {
  if (isMembers(choice)) return { type: 'tool', name: (choice['function'] as Members)['name'] }
  if (choice === 'required') return { type: 'any' }
  return choice === 'auto' || choice === 'none' ? { type: choice } : null
}

const isMarked = (block: Members) => block['cache_control'] !== undefined

/** Thinking cannot be marked. */
function cacheLast(blocks: Members[]): void {
  const last = blocks.at(-1)
  if (last && !String(last['type']).endsWith('thinking')) Object.assign(last, CACHED)
}
