/** The tool calls of a response built from those of a chat completion. Parallel calls stay open until the answer ends, because their arguments may alternate. */
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'
import { argumentsText } from '../../wires/chat/chat-allowed-members.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { sealCallId } from '../../wires/sealed-members.ts'
import { isOtherCall } from '../../wires/chat/tool-call-fragments.ts'
import { customInput, type ChatTools } from './chat-tools.ts'
import type { Emit, ItemStatus } from './response-output.ts'

type Call = {
  /** The upstream's id, '' while it is unknown. */
  id: string
  name: string
  given: string
  /** Null until the name is known. */
  opened: { index: number; item: Members; custom: boolean } | null
  extra: unknown
}

/** `items`: the output, to which calls are added. */
export function openCalls(tools: ChatTools, ids: Ids, emit: Emit, items: Members[]) {
  const calls: Call[] = []
  const byIndex = new Map<unknown, Call>()

  function callFor(index: unknown, id: string, name: string): Call {
    const known = byIndex.get(index)
    if (known && !isOtherCall({ id: known.id, named: known.name !== '' }, id, name)) return known
    const call: Call = { id, name: '', given: '', opened: null, extra: undefined }
    byIndex.set(index, call)
    calls.push(call)
    return call
  }

  function open(call: Call): NonNullable<Call['opened']> {
    const { name, namespace, custom } = tools.clientTool(call.name)
    const item: Members = {
      id: ids.fresh(custom ? 'ctc_' : 'fc_'),
      type: custom ? 'custom_tool_call' : 'function_call',
      status: 'in_progress',
      call_id: call.id === '' ? ids.fresh('call_') : sealCallId(call.id, call.extra, ids),
      name,
      ...(namespace === null ? {} : { namespace }),
      [custom ? 'input' : 'arguments']: '',
    }
    const opened = { index: items.length, item, custom }
    items.push(item)
    emit({ type: 'response.output_item.added', output_index: opened.index, item: { ...item } })
    return opened
  }

  /** The input of a custom tool is one JSON string in the arguments: it is sent when it is complete. */
  function end({ opened, given }: Call, status: ItemStatus): void {
    if (!opened) return
    const { index, item, custom } = opened
    const place = { item_id: item['id'], output_index: index }
    if (custom) {
      const input = customInput(given)
      item['input'] = input
      emit({ type: 'response.custom_tool_call_input.delta', ...place, delta: input })
      emit({ type: 'response.custom_tool_call_input.done', ...place, input })
    } else {
      item['arguments'] = given
      emit({ type: 'response.function_call_arguments.done', ...place, name: item['name'], arguments: given })
    }
    item['status'] = status
    emit({ type: 'response.output_item.done', output_index: index, item: { ...item } })
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
      call.given += text
      const named = !call.opened && name !== ''
      if (named) {
        call.name = name
        call.opened = open(call)
      }
      // Fragments that came before the name are sent with it.
      const sent = named ? call.given : text
      if (call.opened && !call.opened.custom && sent !== '')
        emit({
          type: 'response.function_call_arguments.delta',
          item_id: call.opened.item['id'],
          output_index: call.opened.index,
          delta: sent,
        })
      return named ? [call.name, text] : [text]
    },
    end(status: ItemStatus): void {
      for (const call of calls) end(call, status)
    },
  }
}
