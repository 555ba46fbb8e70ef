/**
 * The tools of a Responses request as functions of a chat request. A function in a namespace gets a name that contains both; a custom tool
 * becomes a function with one text parameter, because only few chat servers have custom tools. Hosted tools are left out.
 */
import { createHash } from 'node:crypto'
import { isMembers, own, ownText, parsedMembers, type Members } from '../../wires/allowlist.ts'
import { unsupported } from '../unsupported-parameter.ts'

/** A tool as the client named it. */
export type ClientTool = { name: string; namespace: string | null; custom: boolean }

export type ChatTools = {
  /** The `tools` of the chat request; empty when there are none. */
  functions: Members[]
  /** The function's name for a tool of the client, also for one that only its history names. */
  chatName(name: string, namespace: string | null): string
  /** The client's tool for the name of a function that the model calls. */
  clientTool(chatName: string): ClientTool
}

/** The longest function name that OpenAI's chat wire accepts. */
const MAX_NAME_LENGTH = 64
/** The parameter of a function that stands for a custom tool. */
const INPUT = 'input'

/** Items that bring tools into a conversation: those that a client adds, and those that a search found. */
const BRINGING = ['additional_tools', 'tool_search_output']

/** The tools of a request, with those that items of its input bring. */
export function toolsOf(body: Members): unknown {
  const [tools, input] = [own(body, 'tools'), own(body, 'input')]
  const bringing = Array.isArray(input) ? (input as Members[]).filter((item) => BRINGING.includes(ownText(item, 'type'))) : []
  const brought = bringing.flatMap((item) => (own(item, 'tools') ?? []) as Members[])
  return brought.length === 0 ? tools : [...((tools ?? []) as Members[]), ...brought]
}

/** The function tools of chat for the `tools` of a request on the wire of responses, and the names of both. Throws `unsupported_parameter` for a tool in the form of another wire. */
export function chatTools(tools: unknown): ChatTools {
  const functions: Members[] = []
  const byChatName = new Map<string, ClientTool>()
  const byClientName = new Map<string, string>()

  function declare(tool: Members, namespace: string | null, path: string): void {
    const type = own(tool, 'type')
    const name = own(tool, 'name')
    if (type !== 'function' && type !== 'custom') return
    if (typeof name !== 'string') throw unsupported(path)
    if (byClientName.has(keyOf(name, namespace))) return
    const plain = joinedName(name, namespace)
    const chatName = byChatName.has(plain) ? hashedName(plain, `${namespace ?? ''}\0${name}`) : plain
    byChatName.set(chatName, { name, namespace, custom: type === 'custom' })
    byClientName.set(keyOf(name, namespace), chatName)
    functions.push({ type: 'function', function: type === 'custom' ? customFunction(tool, chatName) : plainFunction(tool, chatName) })
  }

  for (const [index, tool] of (Array.isArray(tools) ? (tools as Members[]) : []).entries()) {
    const path = `tools[${index}]`
    const inner = own(tool, 'tools')
    const namespace = own(tool, 'name')
    if (own(tool, 'type') !== 'namespace') declare(tool, null, path)
    else if (Array.isArray(inner) && typeof namespace === 'string')
      for (const one of inner) if (isMembers(one)) declare(one, namespace, path)
  }
  return {
    functions,
    chatName: (name, namespace) => byClientName.get(keyOf(name, namespace)) ?? joinedName(name, namespace),
    clientTool: (chatName) => byChatName.get(chatName) ?? { name: chatName, namespace: null, custom: false },
  }
}

const keyOf = (name: string, namespace: string | null) => `${namespace ?? ''}\0${name}`

function joinedName(name: string, namespace: string | null): string {
  if (namespace === null) return name
  const joined = namespace.endsWith('__') ? namespace + name : `${namespace}__${name}`
  return /^[A-Za-z0-9_-]+$/.test(joined) && joined.length <= MAX_NAME_LENGTH ? joined : hashedName(joined, joined)
}

function hashedName(name: string, hashed: string): string {
  const hash = createHash('sha256').update(hashed).digest('hex').slice(0, 8)
  return `${name.replaceAll(/[^A-Za-z0-9_-]/g, '_').slice(0, MAX_NAME_LENGTH - 9)}_${hash}`
}

function plainFunction(tool: Members, name: string): Members {
  const strict = own(tool, 'strict')
  return {
    name,
    ...textMember('description', own(tool, 'description')),
    parameters: own(tool, 'parameters') ?? { type: 'object', properties: {} },
    ...(typeof strict === 'boolean' ? { strict } : {}),
  }
}

function customFunction(tool: Members, name: string): Members {
  const format = own(tool, 'format')
  const grammar = isMembers(format) && own(format, 'type') === 'grammar' ? format : null
  const description = [
    own(tool, 'description'),
    `Put the whole input of the tool, as plain text, into ${INPUT}.`,
    grammar && `It must match this grammar (${ownText(grammar, 'syntax')}):\n${ownText(grammar, 'definition')}`,
  ]
  return {
    name,
    description: description.filter((text) => typeof text === 'string').join('\n\n'),
    parameters: { type: 'object', properties: { [INPUT]: { type: 'string' } }, required: [INPUT], additionalProperties: false },
  }
}

function textMember(name: string, value: unknown): Members {
  return typeof value === 'string' ? { [name]: value } : {}
}

/** The arguments of the function for the input of a custom tool. */
export function customArguments(input: string): string {
  return JSON.stringify({ [INPUT]: input })
}

/** The input of a custom tool in the arguments of its function; arguments of another form are the input themselves. */
export function customInput(given: string): string {
  const input = own(parsedMembers(given) ?? {}, INPUT)
  return typeof input === 'string' ? input : given
}

/** `tools` and `tool_choice` of the chat request, without a choice of a hosted tool. */
export function chatToolMembers(choice: unknown, { functions, chatName }: ChatTools): Members {
  if (functions.length === 0) return {}
  if (!isMembers(choice)) return { tools: functions, ...(typeof choice === 'string' ? { tool_choice: choice } : {}) }
  const named = (tool: Members) => chatName(ownText(tool, 'name'), ownText(tool, 'namespace') || null)
  const type = own(choice, 'type')
  if (type === 'function' || type === 'custom')
    return { tools: functions, tool_choice: { type: 'function', function: { name: named(choice) } } }
  if (type !== 'allowed_tools') return { tools: functions }
  const listed = own(choice, 'tools')
  const allowed = new Set((Array.isArray(listed) ? listed : []).filter(isMembers).map(named))
  const tools = functions.filter((tool) => allowed.has(String((tool['function'] as Members)['name'])))
  return tools.length > 0 ? { tools, tool_choice: own(choice, 'mode') === 'required' ? 'required' : 'auto' } : {}
}
