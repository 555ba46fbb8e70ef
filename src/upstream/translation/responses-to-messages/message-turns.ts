/** The input of a Responses request as the turns of a Messages request. */
import { isMembers, own, ownText, parsedJson, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { lacksThinking } from '../../wires/messages/allowed-thinking.ts'
import { wireId } from '../../wires/messages/replayed-blocks.ts'
import { openThinking } from '../../wires/messages/sealed-thinking.ts'
import { openCallId } from '../../wires/sealed-members.ts'
import { inputOf, OUTPUTS } from '../responses-to-chat/chat-messages.ts'
import { customArguments, type ChatTools } from '../responses-to-chat/chat-tools.ts'
import { asUserMessage } from '../agent-messages.ts'
import { refuseLostItem } from '../lost-tools.ts'
import { blocksOf, resultBlock } from './content-blocks.ts'

export type Turns = {
  system: Members[]
  messages: Members[]
  /** Whether the last turn of the model has calls without its thinking, which the wire refuses while it thinks. */
  lacksThinking: boolean
}

/**
 * Instructions and leading system messages become `system`, later ones user messages, and so the last one if there is nothing else. Throws
 * `unsupported_parameter` for what the wire cannot express.
 */
export function turnsOf(body: Members, tools: ChatTools, ids: Ids): Turns {
  const { items, leading, answered } = inputOf(body)
  const instructions = ownText(body, 'instructions')
  const system = [
    ...(instructions === '' ? [] : [{ type: 'text', text: instructions }]),
    ...items.slice(0, leading).flatMap((item, index) => blocksOf(item, `input[${index}]`)),
  ]
  const turns = openTurns(answered)
  for (const [index, item] of items.entries()) if (index >= leading) addItem(turns, asUserMessage(item), `input[${index}]`, tools, ids)
  const finished = turns.finish()
  // The wire refuses a conversation without messages.
  const [last] = finished.messages.length === 0 ? system.splice(-1) : []
  if (last) finished.messages.push({ role: 'user', content: [last] })
  return { system, ...finished }
}

function addItem(turns: OpenTurns, item: Members, path: string, tools: ChatTools, ids: Ids): void {
  const type = ownText(item, 'type') || 'message'
  refuseLostItem(item, path)
  if (type === 'message') {
    const blocks = blocksOf(item, path)
    return own(item, 'role') === 'assistant' ? turns.assistant(blocks) : turns.user(blocks)
  }
  if (type === 'reasoning') {
    const content = ownText(item, 'encrypted_content')
    const block = openThinking(ids.decrypt(content))
    if (!block) return
    ids.opened.set(block, ids.opened.get(item) ?? content)
    return turns.thinking(block)
  }
  const callId = own(item, 'call_id')
  if (typeof callId !== 'string') return
  const id = wireId(openCallId(callId, ids).id)
  if (OUTPUTS.includes(type)) return turns.result(callId, resultBlock(id, blocksOf(item, path, 'output')))
  if (type === 'function_call') turns.call(callId, toolUse(item, id, argumentsOf(ownText(item, 'arguments')), tools))
  if (type === 'custom_tool_call') turns.call(callId, toolUse(item, id, argumentsOf(customArguments(ownText(item, 'input'))), tools))
}

function toolUse(item: Members, id: string, input: Members, tools: ChatTools): Members {
  return { type: 'tool_use', id, name: tools.chatName(ownText(item, 'name'), ownText(item, 'namespace') || null), input }
}

/** Arguments that a model wrote may be no JSON; the wire takes objects only. */
function argumentsOf(given: string): Members {
  const value = given.trim() === '' ? {} : parsedJson(given)
  return isMembers(value) ? value : { arguments: value === undefined ? given : value }
}

type OpenTurns = ReturnType<typeof openTurns>

/**
 * Turns in the order that the wire requires: those of user and model alternate, and the results of calls directly follow them, before other
 * blocks. `answered`: the ids of the calls that have a result.
 */
function openTurns(answered: ReadonlySet<unknown>) {
  const messages: Members[] = []
  const waiting = new Set<string>()
  let role = ''
  let blocks: Members[] = []
  let thoughts: Members[] = []
  let deferred: Members[] = []

  function blocksFor(next: 'user' | 'assistant'): Members[] {
    if (role !== next) messages.push({ role: (role = next), content: (blocks = []) })
    return blocks
  }

  function assistant(given: Members[]): void {
    if (given.length === 0) return
    const turn = blocksFor('assistant')
    // Thinking without anything after it is no turn.
    for (const block of thoughts) turn.push(block)
    for (const block of given) turn.push(block)
    thoughts = []
  }

  return {
    assistant,
    user(given: Members[]): void {
      const isDeferred = waiting.size > 0
      if (!isDeferred) thoughts = []
      for (const block of given) (isDeferred ? deferred : blocksFor('user')).push(block)
    },
    thinking: (block: Members) => void thoughts.push(block),
    call(clientId: string, block: Members): void {
      assistant([block])
      if (answered.has(clientId)) waiting.add(clientId)
    },
    result(clientId: string, block: Members): void {
      blocksFor('user').push(block)
      waiting.delete(clientId)
      if (waiting.size > 0) return
      for (const later of deferred) blocks.push(later)
      deferred = []
    },
    finish(): Omit<Turns, 'system'> {
      for (const later of deferred) blocksFor('user').push(later)
      return { messages, lacksThinking: lacksThinking(messages) }
    },
  }
}
