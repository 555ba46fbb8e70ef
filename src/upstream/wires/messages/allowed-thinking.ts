/** When the wire refuses a request that asks for thinking, and the request without it. */
import { isMembers, own, ownText, type Members } from '../allowlist.ts'

const DISABLED = { type: 'disabled' }
/** An edit of the context that the wire refuses without thinking. */
const CLEAR_THINKING = 'clear_thinking_20251015'

/** Whether the last turn of the model has calls and does not begin with its thinking, which the wire refuses while a budget for thinking is set. */
export function lacksThinking(messages: readonly Members[]): boolean {
  const content = messages.findLast(({ role }) => role === 'assistant')?.['content']
  if (!Array.isArray(content)) return false
  const types = (content as unknown[]).map((block) => (isMembers(block) ? ownText(block, 'type') : ''))
  return types.includes('tool_use') && !types[0]?.endsWith('thinking')
}

/** The members of a request, without a budget for thinking where its turns lack that. Adaptive thinking has none, and goes on. */
export function withAllowedThinking(members: Members): Members {
  const thinking = own(members, 'thinking')
  const hasBudget = isMembers(thinking) && own(thinking, 'type') === 'enabled'
  return hasBudget && lacksThinking(own(members, 'messages') as Members[]) ? withoutThinking(members) : members
}

/** The members of a request that asks for no thinking, and for no edit that depends on it. */
export function withoutThinking({ context_management: management, ...members }: Members): Members {
  const edits = isMembers(management) ? own(management, 'edits') : undefined
  const left = Array.isArray(edits) ? (edits as unknown[]).filter((edit) => !isMembers(edit) || own(edit, 'type') !== CLEAR_THINKING) : []
  if (!isMembers(management) || (Array.isArray(edits) && left.length === 0)) return { ...members, thinking: DISABLED }
  return { ...members, thinking: DISABLED, context_management: Array.isArray(edits) ? { ...management, edits: left } : management }
}
