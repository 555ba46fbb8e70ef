/**
 * Tools that an upstream gets. By default those that the client runs: hosted tools (web search, code interpreter, MCP servers, file search,
 * image generation) cost money, call addresses and read storage in the name of the operator.
 */
import { isMembers, own, type Members } from '../wires/allowlist.ts'
import type { WireName } from '../wires/wire.ts'
import { isPlainName } from './documented-members.ts'
import type { RequestPolicy } from './request-policy.ts'

type ToolLists = Pick<RequestPolicy, 'allow' | 'drop'>

/** Types of tools that the client runs. */
export const CLIENT_TOOLS: Record<WireName, RegExp> = {
  chat: /^(?:function|custom)$/,
  responses: /^(?:function|custom|namespace|local_shell|shell|apply_patch|computer|computer_use_preview|tool_search)$/,
  // Those of Anthropic carry the date of their version.
  messages: /^(?:custom|(?:bash|text_editor|memory|computer|computer_toolset|browser_toolset)_\d{8})$/,
}
/** It runs at the server, but reads the tools of the request alone: without it, a model would not find those that are loaded later. */
export const TOOL_SEARCH = /^tool_search_tool_(?:bm25|regex)(?:_\d{8})?$/
const NO_LISTS: ToolLists = { allow: new Set(), drop: new Set() }

/** The members with the tools that the policy offers, and without a choice of others. */
export function offeredToolMembers(wire: WireName, members: Members, lists: ToolLists): Members {
  const { tools, tool_choice: choice, ...others } = members
  if (!Array.isArray(tools)) return members
  const offered = offeredTools(wire, tools, lists)
  if (offered.length === 0 && tools.length > 0) {
    delete others['parallel_tool_calls']
    return others
  }
  const chosen = wire === 'messages' ? namedChoice(choice, offered) : offeredChoice(wire, choice, lists)
  return { ...others, tools: offered, ...(chosen === undefined ? {} : { tool_choice: chosen }) }
}

/** The tools of a list in an item of a conversation: those that the client runs. */
export const clientTools = (tools: unknown[]): unknown[] => offeredTools('responses', tools, NO_LISTS)

function offeredTools(wire: WireName, tools: unknown[], lists: ToolLists): unknown[] {
  return tools.flatMap((tool) => {
    if (!isMembers(tool) || !isOffered(wire, tool, lists)) return []
    const kept = plainMembers(tool)
    return Array.isArray(kept['tools']) ? [{ ...kept, tools: offeredTools(wire, kept['tools'], lists) }] : [kept]
  })
}

/** Whether a tool of the Messages wire is one that the client runs. */
export const isClientTool = (tool: Members): boolean => isOffered('messages', tool, NO_LISTS)

function isOffered(wire: WireName, tool: Members, { allow, drop }: ToolLists): boolean {
  // Messages leave the type of their own tools out.
  const type = own(tool, 'type') ?? (wire === 'messages' ? 'custom' : undefined)
  if (typeof type !== 'string' || drop.has(`tool:${type}`)) return false
  if (allow.has(`tool:${type}`) || (wire === 'messages' && TOOL_SEARCH.test(type))) return true
  const environment = own(tool, 'environment') ?? null
  // A shell in a container of the server is hosted.
  const isLocal = environment === null || (isMembers(environment) && own(environment, 'type') === 'local')
  return CLIENT_TOOLS[wire].test(type) && isLocal
}

function offeredChoice(wire: WireName, choice: unknown, lists: ToolLists): unknown {
  if (!isMembers(choice)) return choice
  const kept = plainMembers(choice)
  const nested = kept['allowed_tools']
  if (kept['type'] !== 'allowed_tools') return isOffered(wire, kept, lists) ? kept : undefined
  if (Array.isArray(kept['tools'])) return { ...kept, tools: offeredTools(wire, kept['tools'], lists) }
  if (!isMembers(nested) || !Array.isArray(nested['tools'])) return undefined
  return { ...kept, allowed_tools: { ...nested, tools: offeredTools(wire, nested['tools'], lists) } }
}

/** A choice of Messages has a type of its own and, for one tool, its name. */
function namedChoice(choice: unknown, offered: unknown[]): unknown {
  if (!isMembers(choice) || own(choice, 'type') !== 'tool') return choice
  return offered.some((tool) => isMembers(tool) && own(tool, 'name') === own(choice, 'name')) ? choice : undefined
}

/** The object without members whose name a server that ignores case could take for another. */
export function plainMembers(holder: Members): Members {
  const names = Object.keys(holder)
  return names.every(isPlainName) ? holder : Object.fromEntries(names.filter(isPlainName).map((name) => [name, holder[name]]))
}
