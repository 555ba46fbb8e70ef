/** The body that an upstream is sent: the client's, with the upstream's model name, a limit of output tokens, and the upstream's own ids. */
import { openTurns } from '../../concurrency/event-loop-turns.ts'
import { isWithin, stringifyIncrementally } from '../../json/incremental-stringify.ts'
import { lists, sentMembers, withoutCacheMarks, withoutMembers, withoutToolMarks } from '../policy/request-policy.ts'
import type { Ids } from './encrypted-ids.ts'
import { isMembers, own, ownText, type Members } from './allowlist.ts'
import { withShortIds } from './call-ids.ts'
import { withAllowedThinking } from './messages/allowed-thinking.ts'
import { openCallId } from './sealed-members.ts'
import type { Target, WireName } from './wire.ts'

/** Decrypts the ids in these members of an object, in place. Members that were sealed into an id are left out. */
export function restoreIds(holder: Members, names: readonly string[], ids: Ids): void {
  for (const name of names) {
    const value = own(holder, name)
    if (typeof value === 'string') holder[name] = openCallId(value, ids).id
  }
}

/** Replaces what names an end user or a cache, in place, so that tenants share neither at an upstream. */
export function replaceIdentities(body: Members, ids: Ids): void {
  for (const name of ['user', 'safety_identifier', 'prompt_cache_key']) {
    const value = own(body, name)
    if (typeof value === 'string') body[name] = ids.pseudonym(value)
  }
}

/** The documented member of `stream_options` that clients decide. */
export function obfuscationOf(options: unknown): Members {
  const chosen = isMembers(options) ? own(options, 'include_obfuscation') : undefined
  return chosen === undefined ? {} : { include_obfuscation: chosen }
}

/** The body of a call for each upstream. */
export type UpstreamBody = {
  /** Whether the upstream with this `origin` can read what the model gave last for itself alone, such as its reasoning. True without any. */
  isReadBy(origin: string): boolean
  /** Whether there is a compaction that it cannot read: nothing else says what that stands for. */
  isLostTo(origin: string): boolean
  /** The JSON. */
  body(target: Target): string
  /** The JSON of a large body in pieces, which is made over several turns of the event loop; null when `body` takes only a moment. */
  pieces(target: Target): Promise<Buffer[]> | null
}

/** Characters of a body that are serialized in one stretch. */
const ONE_STRETCH = 256 * 1024

const nextTurn = openTurns()

/**
 * The body for each upstream: its model, the limit, and the members that its policy lets pass. The limit goes under `limitField`, or unless `fixedField` under the upstream's `maxTokensField`.
 * What another upstream gave for itself alone is left out: this one would refuse the conversation. Answers are sealed for the upstream whose body was made last.
 * Takes what was opened since the last one.
 */
export function bodyWriter(
  wire: WireName,
  members: Members,
  limitField: string,
  limit: number,
  fixedField: boolean,
  ids: Ids,
): UpstreamBody {
  const name = wire === 'responses' ? 'input' : 'messages'
  const { [name]: conversation, ...others } = members
  const opened = [...ids.opened]
  ids.opened.clear()
  const head = ({ model, maxTokensField, policy }: Target): Members => {
    const field = fixedField ? limitField : (maxTokensField ?? limitField)
    return { model, [field]: limit, ...sentMembers(wire, others, policy) }
  }
  const body = (target: Target): Members => {
    const isUnmarked = wire === 'chat' && lists(target.policy.drop, wire, 'cache_control')
    const built = isUnmarked ? withoutToolMarks(head(target)) : head(target)
    ids.origin = target.origin
    const foreign = opened.filter(([part, sealed]) => !isCompaction(part) && !ids.isFrom(target.origin, sealed)).map(([part]) => part)
    const left = (foreign.length > 0 ? withoutParts(conversation, new Set<unknown>(foreign)) : conversation) as Members[]
    const long = [...ids.longCalls].filter(([, sealed]) => sealed === null || !ids.isFrom(target.origin, sealed)).map(([id]) => id)
    const readable = long.length > 0 ? withShortIds(wire, left, new Set<unknown>(long)) : left
    built[name] = isUnmarked ? withoutCacheMarks(readable) : readable
    if (wire === 'chat' && target.needsReasoning) built[name] = withReasoning(built[name] as Members[])
    if (wire === 'responses' && foreign.length > 0)
      built[name] = readable.map((item) => (NAMELESS.includes(ownText(item, 'type') || 'message') ? withoutMembers(item, ['id']) : item))
    return wire === 'messages' && foreign.length > 0 ? withAllowedThinking(built) : built
  }
  const isLarge = !isWithin(members, ONE_STRETCH)
  return {
    isReadBy: (origin) => ids.isFrom(origin, opened.at(-1)?.[1] ?? ''),
    isLostTo: (origin) => opened.some(([part, sealed]) => isCompaction(part) && !ids.isFrom(origin, sealed)),
    body: (target) => JSON.stringify(body(target)),
    pieces: (target) => (isLarge ? inTurns(stringifyIncrementally(body(target))) : null),
  }
}

const isCompaction = (part: object) => ['compaction', 'context_compaction'].includes(ownText(part as Members, 'type'))

/** The ids of these items are optional, and servers refuse those of others. */
const NAMELESS = ['message', 'function_call', 'function_call_output', 'custom_tool_call', 'custom_tool_call_output']

/** Each turn of the model with `reasoning_content`. A space stands for what is not known: some servers refuse an empty text. */
function withReasoning(messages: readonly Members[]): Members[] {
  return messages.map((message) => {
    if (own(message, 'role') !== 'assistant' || ownText(message, 'reasoning_content') !== '') return message
    return { ...message, reasoning_content: ownText(message, 'reasoning') || ' ' }
  })
}

/** The parts of a conversation are at most so deep: `messages[].tool_calls[].extra_content`. */
const DEPTH = 5

/** A copy without these parts, and without messages of which nothing is left then. */
function withoutParts(value: unknown, parts: ReadonlySet<unknown>, depth = DEPTH): unknown {
  if (depth === 0 || typeof value !== 'object' || value === null) return value
  if (!Array.isArray(value)) {
    const left = Object.entries(value).filter(([, member]) => !parts.has(member))
    return Object.fromEntries(left.map(([name, member]) => [name, withoutParts(member, parts, depth - 1)]))
  }
  return (value as unknown[]).flatMap((entry) => {
    if (parts.has(entry)) return []
    const left = withoutParts(entry, parts, depth - 1)
    return isEmpty(left) && !isEmpty(entry) ? [] : [left]
  })
}

/** Whether a message says nothing. */
function isEmpty(message: unknown): boolean {
  if (!isMembers(message) || !Object.hasOwn(message, 'role')) return false
  const said = Object.entries(message).filter(([name]) => name !== 'role')
  return said.every(([, value]) => value === null || value === '' || (Array.isArray(value) && value.length === 0))
}

async function inTurns(pieces: Iterable<Buffer>): Promise<Buffer[]> {
  const all: Buffer[] = []
  for (const piece of pieces) {
    all.push(piece)
    await nextTurn()
  }
  return all
}
