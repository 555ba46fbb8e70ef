/** Messages of one agent of Codex to another, such as the task of an agent that was spawned. Only the Responses wire has them. */
import { own, ownText, type Members } from '../wires/allowlist.ts'

/** The item, or for such a message that of a user which says from whom and to whom it is. */
export function asUserMessage(item: Members): Members {
  if (own(item, 'type') !== 'agent_message') return item
  const content = own(item, 'content')
  const text = `Message from ${ownText(item, 'author') || 'an agent'} to ${ownText(item, 'recipient') || 'you'}:`
  const parts: unknown[] = Array.isArray(content) ? content : [{ type: 'input_text', text: ownText(item, 'content') }]
  return { type: 'message', role: 'user', content: [{ type: 'input_text', text }, ...parts] }
}
