/** Ids of calls that are too long for some servers. The server that made one may need it back: it may hold a thought's signature. */
import { createHash } from 'node:crypto'
import { own, type Members } from './allowlist.ts'
import type { WireName } from './wire.ts'

/** The longest that OpenAI's servers take. Those of Messages take any length. */
const LONGEST: Record<WireName, number> = { chat: 40, responses: 64, messages: Infinity }

/** Whether the id of a call is longer than one of the wires takes. */
export const isLongId = (id: string): boolean => id.length > LONGEST.chat

/** The messages, or items, with short ids of calls in place of those of `long` that the wire refuses. */
export function withShortIds(wire: WireName, messages: readonly Members[], long: ReadonlySet<unknown>): Members[] {
  const shortened = (holder: Members, name: string): Members => {
    const id = own(holder, name)
    if (typeof id !== 'string' || id.length <= LONGEST[wire] || !long.has(id)) return holder
    return { ...holder, [name]: `call_${createHash('sha256').update(id).digest('hex').slice(0, 32)}` }
  }
  if (wire !== 'chat') return messages.map((item) => shortened(item, 'call_id'))
  return messages.map((message) => {
    const calls = own(message, 'tool_calls')
    const result = shortened(message, 'tool_call_id')
    return Array.isArray(calls) ? { ...result, tool_calls: (calls as Members[]).map((call) => shortened(call, 'id')) } : result
  })
}
