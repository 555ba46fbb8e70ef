/** The input of a Responses request as messages of a chat request. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { detailsOf, openCallId, openReasoning, type SealedReasoning } from '../../wires/sealed-members.ts'
import { mediaParts, partsOf, textOfParts, textOnly, type Part } from './chat-parts.ts'
import { customArguments, type ChatTools } from './chat-tools.ts'
import { asUserMessage } from '../agent-messages.ts'
import { refuseLostItem } from '../lost-tools.ts'

export const OUTPUTS = ['function_call_output', 'custom_tool_call_output']

/** The items of a request's input, how many of them lead as system messages, and the ids of the calls that have a result. */
export function inputOf(body: Members): { items: Members[]; leading: number; answered: Set<unknown> } {
  const input = own(body, 'input')
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : ((input ?? []) as Members[])
  const first = items.findIndex((item) => !['system', 'developer'].includes(ownText(item, 'role')))
  const answered = new Set(items.filter((item) => OUTPUTS.includes(ownText(item, 'type'))).map((item) => own(item, 'call_id')))
  return { items, leading: first < 0 ? items.length : first, answered }
}

/**
 * Instructions and the system messages before the first other item become one system message, because templates of many models accept only
 * one; a later system or developer message becomes a user message. Throws `unsupported_parameter` for what chat cannot express.
 */
export function chatMessages(body: Members, tools: ChatTools, ids: Ids): Members[] {
  const { items, leading, answered } = inputOf(body)
  const system = [
    own(body, 'instructions'),
    ...items.slice(0, leading).map((item, index) => textOnly(partsOf(item, `input[${index}].content`), `input[${index}].content`)),
  ]
  const text = system.filter((one) => typeof one === 'string' && one !== '').join('\n\n')
  const conversation = openConversation(answered, ids)
  for (const [index, item] of items.entries())
    if (index >= leading) addItem(conversation, asUserMessage(item), `input[${index}]`, tools, ids)
  return [...(text === '' ? [] : [{ role: 'system', content: text }]), ...conversation.messages()]
}

function addItem(conversation: Conversation, item: Members, path: string, tools: ChatTools, ids: Ids): void {
  const type = own(item, 'type') ?? 'message'
  if (typeof type !== 'string') return
  refuseLostItem(item, path)
  const callId = own(item, 'call_id')
  if (type === 'message') return addMessage(conversation, item, path)
  if (type === 'reasoning') return conversation.reasoning(openReasoning(own(item, 'encrypted_content'), ids))
  if (typeof callId !== 'string') return
  const { id, extra } = openCallId(callId, ids)
  if (OUTPUTS.includes(type)) return conversation.output(callId, id, partsOf(item, `${path}.output`, 'output'))
  if (type !== 'function_call' && type !== 'custom_tool_call') return
  const name = tools.chatName(ownText(item, 'name'), ownText(item, 'namespace') || null)
  const given = ownText(item, type === 'function_call' ? 'arguments' : 'input')
  const called = { name, arguments: type === 'function_call' ? given : customArguments(given) }
  if (extra) ids.opened.set(extra, callId)
  conversation.call(callId, { id, type: 'function', function: called, ...(extra ? { extra_content: extra } : {}) })
}

function addMessage(conversation: Conversation, item: Members, path: string): void {
  const parts = partsOf(item, `${path}.content`)
  if (own(item, 'role') === 'assistant') conversation.text(textOnly(parts, `${path}.content`))
  else
    conversation.message({
      role: 'user',
      content: mediaParts(parts).length > 0 ? parts : textOfParts(parts),
    })
}

type Conversation = ReturnType<typeof openConversation>

/**
 * Builds messages in the order that chat servers require: one assistant message per turn, with its calls, directly followed by their results.
 * A message between a call and its result comes after the result. `answered`: the ids of the calls that have a result.
 */
function openConversation(answered: Set<unknown>, ids: Ids) {
  const messages: Members[] = []
  const waiting = new Set<string>()
  let deferred: Members[] = []
  let assistant: Members | null = null
  let reasoning: SealedReasoning[] = []

  function turn(): Members {
    if (!assistant) messages.push((assistant = { role: 'assistant', content: null }))
    if (reasoning.length > 0) addReasoning(assistant, reasoning, ids)
    reasoning = []
    return assistant
  }

  function message(given: Members): void {
    if (waiting.size > 0) return void deferred.push(given)
    assistant = null
    reasoning = []
    messages.push(given)
  }

  return {
    messages: () => [...messages, ...deferred],
    message,
    text(text: string): void {
      const current = turn()
      current['content'] = typeof current['content'] === 'string' ? `${current['content']}\n\n${text}` : text
    },
    reasoning(opened: SealedReasoning | null): void {
      if (opened) reasoning.push(opened)
    },
    call(clientId: string, call: Members): void {
      const current = turn()
      const calls = (current['tool_calls'] ??= []) as Members[]
      calls.push(call)
      if (answered.has(clientId)) waiting.add(clientId)
    },
    /** Results are text on the chat wire: their images and files follow as a user message. */
    output(clientId: string, id: string, parts: Part[]): void {
      // Reasoning after a call belongs to the turn of the call.
      if (reasoning.length > 0 && assistant) turn()
      assistant = null
      messages.push({ role: 'tool', tool_call_id: id, content: textOfParts(parts) })
      const media = mediaParts(parts)
      if (media.length > 0) deferred.push({ role: 'user', content: media })
      waiting.delete(clientId)
      if (waiting.size > 0) return
      for (const later of deferred) messages.push(later)
      deferred = []
    },
  }
}

/** Upstreams with `reasoning_details` get only these, because they contain the text. */
function addReasoning(message: Members, reasoning: SealedReasoning[], ids: Ids): void {
  if (reasoning.some(({ details = [] }) => details.length > 0)) {
    message['reasoning_details'] = detailsOf(reasoning, ids, message['reasoning_details'] as unknown[] | undefined)
    return
  }
  for (const { text } of reasoning) if (text && isMembers(message)) message[text.member] = String(message[text.member] ?? '') + text.text
}
