/** The tool calls of a response built from those of a chat completion. Parallel calls stay open until the answer ends, because their arguments may alternate. */
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'
import { argumentsText } from '../../wires/chat/chat-allowed-members.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { sealCallId } from '../../wires/sealed-members.ts'
import { isOtherCall } from '../../wires/chat/tool-call-fragments.ts'
import type { ItemStatus, ResponseCall, ResponseItems } from '../response-items.ts'

type Call = {
  /** The upstream's id, '' while it is unknown. */
  id: string
  name: string
  /** The fragments that came before the name. */
  early: string
  /** Null until the name is known. */
  opened: ResponseCall | null
  extra: unknown
}

/** `output`: the items, to which calls are added. */
export function openCalls(output: ResponseItems, ids: Ids) {
  const calls: Call[] = []
  const byIndex = new Map<unknown, Call>()

  function callFor(index: unknown, id: string, name: string): Call {
    const known = byIndex.get(index)
    if (known && !isOtherCall({ id: known.id, named: known.name !== '' }, id, name)) return known
    const call: Call = { id, name: '', early: '', opened: null, extra: undefined }
    byIndex.set(index, call)
    calls.push(call)
    return call
  }

  return {
    /** Adds a call or a fragment of one, and returns the model's text in it. */
    add(delta: Members): string[] {
      const called = isMembers(delta['function']) ? delta['function'] : {}
      const id = ownText(delta, 'id')
      const name = ownText(called, 'name')
      const call = callFor(delta['index'], id, name)
      call.id ||= id
      call.extra ??= delta['extra_content']
      const text = String(argumentsText(called['arguments'], ids) ?? '')
      if (!call.opened) call.early += text
      const named = !call.opened && name !== ''
      if (named) {
        call.name = name
        call.opened = output.call(name, call.id === '' ? ids.fresh('call_') : sealCallId(call.id, call.extra, ids), ids.fresh)
      }
      call.opened?.delta(named ? call.early : text)
      return named ? [call.name, text] : [text]
    },
    end(status: ItemStatus): void {
      for (const { opened } of calls) opened?.end(status)
    },
  }
}
