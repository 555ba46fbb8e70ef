/** The body of a Messages request as the body of a Responses request. */
import { isMembers, own, type Members } from '../../wires/allowlist.ts'
import { MODEL } from '../../wires/model-name.ts'
import { effortOfBudget } from '../budget-effort.ts'
import { unsupported } from '../unsupported-parameter.ts'
import { inputItems, instructionsOf, type Place } from './input-items.ts'
import { toolMembers } from './function-tools.ts'

/** The Responses wire's efforts end at `high` for most models. */
const EFFORTS: Record<string, string> = { low: 'low', medium: 'medium', high: 'high', xhigh: 'high', max: 'high' }

/** Whether the client asks for thinking: without, an answer has none that can be read, because many clients do not expect it. */
export function asksForThinking(body: Members): boolean {
  const thinking = own(body, 'thinking')
  return isMembers(thinking) && own(thinking, 'type') !== 'disabled'
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
  if (!asksForThinking(body)) return replays ? include : {}
  const effort = effortOf(body)
  return { reasoning: { ...(effort ? { effort } : {}), summary: 'auto' }, ...include }
}

function effortOf(body: Members): string | undefined {
  const named = own((own(body, 'output_config') ?? {}) as Members, 'effort')
  if (typeof named === 'string' && Object.hasOwn(EFFORTS, named)) return EFFORTS[named]
  return effortOfBudget(own((own(body, 'thinking') ?? {}) as Members, 'budget_tokens'))
}

function formatOf(body: Members): Members | null {
  const format = own((own(body, 'output_config') ?? {}) as Members, 'format') ?? own(body, 'output_format')
  if (!isMembers(format) || !isMembers(own(format, 'schema'))) return null
  return { type: 'json_schema', name: 'output', schema: own(format, 'schema'), strict: true }
}
