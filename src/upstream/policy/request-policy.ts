/**
 * Which members of a request an upstream gets: the documented ones, without those that cost more, store or run something at the server, and
 * the upstream's own `allow`, `drop` and `force` (`docs/upstreams.md`).
 */
import { isMembers, own, type Members } from '../wires/allowlist.ts'
import type { WireName } from '../wires/wire.ts'
import { DOCUMENTED_MEMBERS } from './documented-members.ts'
import { offeredToolMembers } from './hosted-tools.ts'

/** `allow` and `drop`: members, and tools as `tool:<type>`; a member of one wire alone as `<wire>:<name>`. `force`: members that replace the client's. */
export type RequestPolicy = { allow: ReadonlySet<string>; drop: ReadonlySet<string>; force: Members }

/** Members that pass only where they are allowed: they choose a price, or store something at the server. */
const ON_REQUEST = ['store', 'web_search_options', 'prompt_cache_options', 'prompt_cache_retention']
/** The tiers that cost the standard price. */
const STANDARD_TIERS: unknown[] = ['auto', 'default', 'standard_only']

/** Whether entries of `allow` or `drop` name a member, on every wire or on this one. */
export function lists(entries: ReadonlySet<string>, wire: WireName, name: string): boolean {
  return entries.has(name) || entries.has(`${wire}:${name}`)
}

/** The members of a request that the upstream of this policy gets, without the conversation. */
export function sentMembers(wire: WireName, members: Members, policy: RequestPolicy): Members {
  const { allow, drop, force } = policy
  const sent: Members = {}
  for (const name in members) {
    if (lists(drop, wire, name) || !(lists(allow, wire, name) || isSent(wire, name, members, allow))) continue
    sent[name] = members[name]
  }
  // OpenAI stores responses by default.
  if (wire === 'responses' && ![allow, drop].some((entries) => lists(entries, wire, 'store'))) sent['store'] = false
  return { ...offeredToolMembers(wire, sent, policy), ...force }
}

function isSent(wire: WireName, name: string, members: Members, allow: ReadonlySet<string>): boolean {
  if (!DOCUMENTED_MEMBERS[wire].has(name) || ON_REQUEST.includes(name)) return false
  if (name === 'service_tier') return STANDARD_TIERS.includes(members[name])
  // A chat completion has metadata only when it is stored; OpenAI refuses it otherwise.
  return !(wire === 'chat' && name === 'metadata' && !lists(allow, wire, 'store'))
}

/** The members of a body without those that the gateway sets itself. */
export function withoutMembers(body: Members, names: readonly string[]): Members {
  const rest: Members = {}
  for (const name of Object.keys(body)) if (!names.includes(name)) rest[name] = own(body, name)
  return rest
}

const isMarked = (part: unknown) => isMembers(part) && own(part, 'cache_control') !== undefined

/** The members of a chat without the marks of a cache at tools and in them, for servers that refuse them. */
export function withoutToolMarks(members: Members): Members {
  const { tools } = members
  if (!Array.isArray(tools)) return members
  const unmarked = (tools as Members[]).map((tool) => {
    const plain = isMarked(tool) ? withoutMembers(tool, ['cache_control']) : tool
    const declared = own(plain, 'function')
    return isMarked(declared) ? { ...plain, function: withoutMembers(declared as Members, ['cache_control']) } : plain
  })
  return { ...members, tools: unmarked }
}

/** The messages of a chat without the marks of a cache in their parts, for servers that refuse them. */
export function withoutCacheMarks(messages: readonly Members[]): Members[] {
  return messages.map((message) => {
    const content = own(message, 'content')
    if (!Array.isArray(content) || !content.some(isMarked)) return message
    return { ...message, content: (content as unknown[]).map((part) => (isMembers(part) ? withoutMembers(part, ['cache_control']) : part)) }
  })
}
