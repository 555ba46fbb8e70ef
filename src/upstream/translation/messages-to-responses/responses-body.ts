/** The body of a Messages request as the body of a Responses request. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import { MODEL } from '../../wires/model-name.ts'
import { effortOfBudget } from '../budget-effort.ts'
import { unsupported } from '../unsupported-parameter.ts'
import { inputItems, instructionsOf, type Place } from './input-items.ts'
import type { ThinkingDisplay } from './message-content.ts'
import { toolMembers } from './function-tools.ts'

/** The Responses wire's efforts end at `high` for most models. */
const EFFORTS: Record<string, string> = { low: 'low', medium: 'medium', high: 'high', xhigh: 'high', max: 'high' }

/**
 * How the client wants to see thinking. Null if it asks for none: an answer then has none that can be read, because many clients do not
 * expect it.
 */
export function thinkingDisplay(body: Members): ThinkingDisplay | null {
  const thinking = own(body, 'thinking')
  if (!isMembers(thinking) || own(thinking, 'type') === 'disabled') return null
  return own(thinking, 'display') === 'omitted' ? 'omitted' : 'summarized'
}

/**
 * The body for a validated request, and where its items stand in that. `least`: the lowest limit of tokens that the upstream takes. Throws `invalid_request`
 * for a block that cannot be carried, and `unsupported_parameter`.
 */
export function responsesBody(body: Members, least: number): { body: Members; places: Place[] } {
  const { items, places } = inputItems(own(body, 'messages') as Members[])
  const instructions = instructionsOf(own(body, 'system'))
  const limit = own(body, 'max_tokens')
  if (limit === 0) throw unsupported('max_tokens')
  const userId = own((own(body, 'metadata') ?? {}) as Members, 'user_id')
  const built: Members = { model: MODEL, input: items, store: false, stream: own(body, 'stream') ?? false }
  if (instructions !== '') built['instructions'] = instructions
  if (typeof limit === 'number' && limit > 0) built['max_output_tokens'] = Math.max(limit, least)
  if (typeof userId === 'string') built['user'] = userId
  for (const name of ['temperature', 'top_p']) if (typeof own(body, name) === 'number') built[name] = own(body, name)
  const format = formatOf(body)
  if (format) built['text'] = { format }
  return { body: { ...built, ...toolMembers(body), ...reasoningMembers(body, items) }, places }
}

function reasoningMembers(body: Members, items: Members[]): Members {
  const replays = items.some(({ type }) => type === 'reasoning')
  const include = { include: ['reasoning.encrypted_content'] }
  const display = thinkingDisplay(body)
  if (display === null) return replays ? include : {}
  const effort = namedEffort(body) ?? effortOfBudget(own((own(body, 'thinking') ?? {}) as Members, 'budget_tokens'))
  return { reasoning: { ...(effort ? { effort } : {}), ...(display === 'omitted' ? {} : { summary: 'auto' }) }, ...include }
}

/**
 * The effort at the end of the conversation: that of the request, until a system message names another one. It holds from the answer to the
 * message of the user that it directly follows, or to the next one; results of tools alone are none.
 */
function namedEffort(body: Members): string | undefined {
  let effort = effortIn(body)
  let next: string | undefined
  let followsUser = false
  for (const message of own(body, 'messages') as Members[]) {
    if (own(message, 'role') === 'system') next = effortIn(message) ?? next
    else followsUser = own(message, 'role') === 'user' && hasInput(own(message, 'content'))
    if (!followsUser) continue
    effort = next ?? effort
    next = undefined
  }
  return effort
}

function effortIn(holder: Members): string | undefined {
  const config = own(holder, 'output_config')
  const effort = isMembers(config) ? ownText(config, 'effort') : ''
  return Object.hasOwn(EFFORTS, effort) ? EFFORTS[effort] : undefined
}

const hasInput = (content: unknown) =>
  !Array.isArray(content) || (content as Members[]).some((block) => own(block, 'type') !== 'tool_result')

function formatOf(body: Members): Members | null {
  const format = own((own(body, 'output_config') ?? {}) as Members, 'format') ?? own(body, 'output_format')
  if (!isMembers(format) || !isMembers(own(format, 'schema'))) return null
  return { type: 'json_schema', name: 'output', schema: own(format, 'schema'), strict: true }
}
