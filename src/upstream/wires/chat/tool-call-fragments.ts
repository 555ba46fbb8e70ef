/**
 * The tool calls of a streamed chat completion as OpenAI sends them: each has an index of its own, and its id, type and name once. Some
 * servers give all calls the index 0, or repeat ids and names in every fragment. SDKs join the fragments of an index, and append the texts
 * in them to one another.
 */
import { isMembers, ownText, type Members } from '../allowlist.ts'
import type { Ids } from '../encrypted-ids.ts'

export type ToolCallFragments = {
  /** Changes the cleaned fragments of one choice in place. `given`: the same ones as the upstream sent them. */
  normalize(choice: number, given: readonly unknown[], cleaned: Members[]): void
  /** Whether the fragments of a call need no change but in their ids and names. `index`: the upstream's. */
  isUnchanged(choice: number, index: unknown): boolean
}

type Call = { index: number; id: string; named: boolean; hasId: boolean }

/**
 * Whether a fragment begins another call than the one before with its index. Names alone are not sufficient where calls have ids, nor are
 * ids, which some servers make anew for each fragment.
 */
export function isOtherCall(before: { id: string; named: boolean }, id: string, name: string): boolean {
  if (name === '') return false
  return id === '' || before.id === '' ? id === before.id && before.named : id !== before.id
}

/** What the first fragment of a call must have. */
function complete(fragment: Members): void {
  const { function: called } = fragment
  fragment['type'] ??= fragment['custom'] === undefined ? 'function' : 'custom'
  if (isMembers(called)) called['arguments'] ??= ''
}

/** The fragments of one stream. `ids` gives an id to a call that has none. */
export function openToolCallFragments(ids: Ids): ToolCallFragments {
  /** By the choice: its calls by the upstream's index, and their number. */
  const choices = new Map<number, { calls: Map<unknown, Call>; count: number }>()

  function begin(choice: number, index: unknown): Call {
    const known = choices.get(choice) ?? { calls: new Map<unknown, Call>(), count: 0 }
    const call = { index: known.count++, id: '', named: false, hasId: false }
    known.calls.set(index, call)
    choices.set(choice, known)
    return call
  }

  function normalizeOne(choice: number, id: string, fragment: Members): void {
    const called = fragment['function'] ?? fragment['custom']
    const name = isMembers(called) ? ownText(called, 'name') : ''
    const before = choices.get(choice)?.calls.get(fragment['index'])
    const isFirst = !before || isOtherCall(before, id, name)
    const call = isFirst ? begin(choice, fragment['index']) : before
    fragment['index'] = call.index
    if (isFirst) complete(fragment)
    else delete fragment['type']
    if (call.hasId) delete fragment['id']
    else if (name !== '') fragment['id'] ??= ids.fresh('call_')
    if (call.named && name !== '' && isMembers(called)) delete called['name']
    call.id ||= id
    call.named ||= name !== ''
    call.hasId ||= fragment['id'] !== undefined
  }

  return {
    isUnchanged: (choice, index) => choices.get(choice)?.calls.get(index)?.index === index,
    normalize(choice, given, cleaned) {
      for (const [position, fragment] of cleaned.entries()) {
        const raw = given[position]
        normalizeOne(choice, isMembers(raw) ? ownText(raw, 'id') : '', fragment)
      }
    },
  }
}
