/** The conversation of a request as upstreams get it: messages of the chat wire, or items of the responses wire. */
import { isMembers, own, ownText, type Members } from '../wires/allowlist.ts'
import { invalid } from '../wires/coding-request-validation.ts'
import { cleanPart, cleanParts, type References } from './content-parts.ts'
import { clientTools, plainMembers } from './hosted-tools.ts'
import { lists } from './request-policy.ts'

/** Documented members of messages, and the reasoning that agents replay. */
const MESSAGE = [
  'role',
  'content',
  'name',
  'refusal',
  'audio',
  'function_call',
  'tool_calls',
  'tool_call_id',
  'reasoning_content',
  'reasoning',
  'reasoning_details',
]

/** Changes the messages in place. Throws `invalid_request`. */
export function cleanMessages(messages: Members[], references: References): void {
  for (const [index, message] of messages.entries()) {
    for (const name of Object.keys(message)) if (!MESSAGE.includes(name)) Reflect.deleteProperty(message, name)
    const content = own(message, 'content')
    if (Array.isArray(content)) message['content'] = cleanParts('chat', content, `messages[${index}].content`, references)
  }
}

/** Members of a system message of the Messages wire, beside its content. */
const OF_SYSTEM = ['clear_at', 'output_config']

/** First line of a block that Claude Code adds: it differs in every request, says nothing to a model, and would defeat prompt caches. */
const BILLING = /^x-anthropic-billing-header:/

/** Changes the messages and the system prompt of a request of the Messages wire in place. Throws `invalid_request`. */
export function cleanTurns(body: Members, references: References): void {
  const system = own(body, 'system')
  if (Array.isArray(system))
    body['system'] = cleanParts('messages', system, 'system', references).filter(
      (block) => !isMembers(block) || !BILLING.test(ownText(block, 'text')),
    )
  body['messages'] = (own(body, 'messages') as Members[]).map((message, index) => {
    const content = own(message, 'content')
    const param = `messages[${index}].content`
    const turn: Members = { role: own(message, 'role') }
    if (content !== undefined) turn['content'] = Array.isArray(content) ? cleanParts('messages', content, param, references) : content
    for (const name of OF_SYSTEM) if (turn['role'] === 'system' && own(message, name) !== undefined) turn[name] = own(message, name)
    return turn
  })
}

/** Items whose `output` is content: text, a list of parts, or one part. */
export const CONTENT_OUTPUTS = ['function_call_output', 'custom_tool_call_output', 'computer_call_output']

/** Throws `invalid_request`. Items that only a server with storage can resolve are refused or, where the model can do without, left out. */
export function cleanItems(items: Members[], references: References): Members[] {
  return items.flatMap((item, index) => {
    const type = own(item, 'type')
    if (type === 'item_reference' && !lists(references.allowed, 'responses', type))
      throw invalid(`input[${index}].type`, `input[${index}]: stored items are not offered. Send the item itself, and set store to false.`)
    return type === 'reasoning' && !lists(references.allowed, 'responses', 'store') && !isReplayable(item)
      ? []
      : [cleanItem(item, `input[${index}]`, references)]
  })
}

/** A reasoning item without its content is a reference to a stored one. */
function isReplayable(item: Members): boolean {
  const content = own(item, 'content')
  return typeof own(item, 'encrypted_content') === 'string' || (Array.isArray(content) && content.length > 0)
}

function cleanItem(item: Members, param: string, references: References): Members {
  const cleaned = { ...plainMembers(item) }
  const { type, content, output, tools } = cleaned
  if (Array.isArray(content)) cleaned['content'] = cleanParts('responses', content, `${param}.content`, references)
  if (Array.isArray(tools)) cleaned['tools'] = clientTools(tools)
  if (typeof type !== 'string' || !CONTENT_OUTPUTS.includes(type)) return cleaned
  if (Array.isArray(output)) cleaned['output'] = cleanParts('responses', output, `${param}.output`, references)
  else if (isMembers(output)) cleaned['output'] = cleanPart('responses', output, `${param}.output`, references)
  return cleaned
}
