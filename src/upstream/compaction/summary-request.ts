/** The request for a summary of a conversation, and the messages of the user in it, which compaction keeps as they are. */
import type { Ids } from '../wires/encrypted-ids.ts'
import { CONTENT_OUTPUTS } from '../policy/conversation.ts'
import { isMembers, own, ownText, type Members } from '../wires/allowlist.ts'

const PROMPT = `Compact this conversation: write a summary from which another model can carry on the work without having read it.
Keep the task and every wish and decision of the user; what was done and how it turned out; names of files, functions and commands, values and errors that still matter; what is left to do, and the next step.
Calls of tools and their results are shown above as text. Call none, and answer with the summary alone.`

/** Members that a summary depends on. Tools and the format of answers are not among them. */
const KEPT = ['model', 'instructions', 'reasoning', 'prompt_cache_key', 'safety_identifier', 'user', 'service_tier', 'stream', 'store']
/** Sent as they are: what is stored or encrypted elsewhere cannot be shown as text, and the translations show messages of other agents. */
const SENT = ['message', 'agent_message', 'item_reference', 'compaction', 'context_compaction']
const OUTPUT = /_output$/

/** The body without the trigger at the end of its items, and the items of the summary's request. */
export function summaryRequest(body: Members, items: readonly Members[]): { body: Members; items: Members[] } {
  const built: Members = {}
  for (const name of KEPT) if (own(body, name) !== undefined) built[name] = own(body, name)
  const asked = [...items.slice(0, -1).flatMap(shown), { type: 'message', role: 'user', content: PROMPT }]
  return { body: { ...built, input: asked }, items: asked }
}

/** Calls and results as messages, because many servers refuse them in a request without tools. Reasoning is only its model's. */
function shown(item: Members): Members[] {
  const type = ownText(item, 'type') || 'message'
  if (SENT.includes(type) && !isSealed(item)) return [item]
  if (type === 'reasoning') return []
  if (OUTPUT.test(type)) return [{ type: 'message', role: 'user', content: resultOf(item) }]
  const given = own(item, 'arguments') ?? own(item, 'input')
  const call = typeof given === 'string' ? `${ownText(item, 'name')} ${given}` : textOf(item)
  return [{ type: 'message', role: 'assistant', content: `Call of a tool: ${call}` }]
}

/** A message of another agent that only its service reads. */
function isSealed(item: Members): boolean {
  const content = own(item, 'content')
  return Array.isArray(content) && (content as Members[]).some((part) => ownText(part, 'type') === 'encrypted_content')
}

/** Parts and screenshots only of results whose addresses and files were vetted: all others are text. */
function resultOf(item: Members): string | Members[] {
  const output = own(item, 'output')
  const heading = 'Result of the tool:'
  if (!CONTENT_OUTPUTS.includes(ownText(item, 'type'))) return `${heading} ${typeof output === 'string' ? output : textOf(item)}`
  const parts: unknown[] = Array.isArray(output) ? output : []
  if (parts.some((part) => isMembers(part) && ownText(part, 'type').startsWith('input_')))
    return [{ type: 'input_text', text: heading }, ...(parts as Members[])]
  const screenshot = isMembers(output) ? own(output, 'image_url') : undefined
  if (typeof screenshot === 'string')
    return [
      { type: 'input_text', text: heading },
      { type: 'input_image', image_url: screenshot, detail: 'auto' },
    ]
  return `${heading} ${typeof output === 'string' ? output : textOf(item)}`
}

/** The members of an item that say something. */
function textOf({ id: _id, call_id: _callId, status: _status, encrypted_content: _content, result: _image, ...rest }: Members): string {
  return JSON.stringify(rest)
}

/** The messages of the user, as items of an output. */
export function userMessages(items: readonly Members[], ids: Ids): Members[] {
  return items
    .filter((item) => (ownText(item, 'type') || 'message') === 'message' && ownText(item, 'role') === 'user')
    .map((item) => {
      const content = own(item, 'content')
      const parts = typeof content === 'string' ? [{ type: 'input_text', text: content }] : content
      return { id: ids.fresh('msg_'), type: 'message', status: 'completed', role: 'user', content: parts }
    })
}
