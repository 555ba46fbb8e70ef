/** Validation of the bodies of the Messages wire, for both of its endpoints. */
import { checkTypes, invalid, readBody, type MemberTypes } from '../coding-request-validation.ts'
import { isMembers, own, ownText, type Members } from '../allowlist.ts'

const MEMBERS: MemberTypes = {
  messages: 'objects',
  system: 'string or objects',
  tools: 'objects',
  tool_choice: 'object',
  context_management: 'object',
  thinking: 'object',
  output_config: 'object',
  metadata: 'object',
  stop_sequences: 'strings',
  temperature: 'number',
  top_p: 'number',
  top_k: 'number',
}
const MESSAGE: MemberTypes = { role: 'string', content: 'string or objects' }
/** The required members of content blocks by type. */
const BLOCKS: Record<string, MemberTypes> = {
  text: { text: 'string' },
  tool_use: { id: 'string', name: 'string' },
  tool_result: { tool_use_id: 'string' },
  image: { source: 'object' },
  document: { source: 'object' },
}
const MAX_SEQUENCES = 16
const MAX_SEQUENCE_LENGTH = 256

/** A valid body of the wire. */
export type MessagesBody = Members & { messages: Members[] }

/**
 * Validates a body for both endpoints. Throws `invalid_request` naming the parameter, and `model_not_found`. Unknown members pass without
 * effect: clients of this wire send new ones with every release.
 */
export function checkMessagesBody(value: unknown): MessagesBody {
  const body = readBody(value)
  checkTypes(body, MEMBERS)
  const messages = own(body, 'messages')
  if (!Array.isArray(messages) || messages.length === 0) throw invalid('messages', 'messages is required, with at least one message.')
  for (const [index, message] of (messages as Members[]).entries()) checkMessage(message, `messages[${index}]`)
  refuseCompaction(body)
  for (const [index, tool] of ((own(body, 'tools') ?? []) as Members[]).entries()) checkTool(tool, `tools[${index}]`)
  const sequences = (own(body, 'stop_sequences') ?? []) as string[]
  if (sequences.length > MAX_SEQUENCES || sequences.some(({ length }) => length > MAX_SEQUENCE_LENGTH))
    throw invalid(
      'stop_sequences',
      `stop_sequences: at most ${MAX_SEQUENCES} sequences of at most ${MAX_SEQUENCE_LENGTH} characters are supported.`,
    )
  return body as MessagesBody
}

/** Its summary would replace the conversation. Without effect, the conversation would grow until the model refuses it. */
function refuseCompaction(body: Members): void {
  const edits = own((own(body, 'context_management') ?? {}) as Members, 'edits')
  const edit = Array.isArray(edits) ? edits.findIndex((one) => isMembers(one) && ownText(one, 'type').startsWith('compact_')) : -1
  const param = edit >= 0 ? `context_management.edits[${edit}]` : (own(body, 'compaction') ?? null) === null ? null : 'compaction'
  if (param !== null)
    throw invalid(param, `${param}: the server does not compact conversations on this endpoint. Compact them in the client.`)
}

function checkMessage(message: Members, path: string): void {
  checkTypes(message, MESSAGE, `${path}.`)
  if (!['user', 'assistant', 'system'].includes(ownText(message, 'role')))
    throw invalid(`${path}.role`, `${path}.role must be user, assistant or system.`)
  const content = own(message, 'content') ?? null
  // A system message may change settings alone.
  if (content === null && own(message, 'role') === 'system' && isMembers(own(message, 'output_config'))) return
  if (content === null) throw invalid(`${path}.content`, `${path}.content is required.`)
  if (Array.isArray(content)) checkBlocks(content as Members[], `${path}.content`)
}

function checkBlocks(blocks: readonly Members[], path: string): void {
  for (const [index, block] of blocks.entries()) {
    const place = `${path}[${index}]`
    const type = own(block, 'type')
    if (typeof type !== 'string') throw invalid(`${place}.type`, `${place}.type must be a string.`)
    const required = Object.hasOwn(BLOCKS, type) ? (BLOCKS[type] ?? {}) : {}
    for (const name in required) if ((own(block, name) ?? null) === null) throw invalid(`${place}.${name}`, `${place}.${name} is required.`)
    checkTypes(block, type === 'tool_result' ? { ...required, content: 'string or objects' } : required, `${place}.`)
    const inner = own(block, 'content')
    if (type === 'tool_result' && Array.isArray(inner)) checkBlocks(inner as Members[], `${place}.content`)
  }
}

function checkTool(tool: Members, path: string): void {
  const type = own(tool, 'type') ?? 'custom'
  if (typeof type !== 'string') throw invalid(`${path}.type`, `${path}.type must be a string.`)
  if (type !== 'custom') return
  if (ownText(tool, 'name') === '') throw invalid(`${path}.name`, `${path}.name must be a string.`)
  if (!isMembers(own(tool, 'input_schema'))) throw invalid(`${path}.input_schema`, `${path}.input_schema must be an object.`)
}
