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
  const sent = { ...members, thinking: DISABLED }
  if (!isMembers(management)) return sent
  const edits = own(management, 'edits')
  if (!Array.isArray(edits)) return { ...sent, context_management: management }
  const left = (edits as unknown[]).filter((edit) => !isMembers(edit) || own(edit, 'type') !== CLEAR_THINKING)
  return left.length === 0 ? sent : { ...sent, context_management: { ...management, edits: left } }
}
