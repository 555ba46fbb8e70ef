/** The messages of a chat request as input items of a Responses request. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { openCallId, replayedReasoning } from '../../wires/sealed-members.ts'
import { unsupported } from '../unsupported-parameter.ts'

/** `marks`: whether parts keep their `cache_control`. Throws `unsupported_parameter` naming a content part that the Responses wire cannot express. */
export function inputItems(messages: readonly Members[], ids: Ids, marks: boolean): Members[] {
  const calls = openCallTypes()
  return messages.flatMap((message, index) => itemsOf(message, `messages[${index}]`, calls, ids, marks))
}

/** Results say of which type their call was; the calls of the older `function_call` have no ids. */
function openCallTypes() {
  const custom = new Set<string>()
  let functions = 0
  return {
    addCustom: (id: string) => void custom.add(id),
    isCustom: (id: string) => custom.has(id),
    nextFunction: () => `call_function_${++functions}`,
    lastFunction: () => `call_function_${functions}`,
  }
}
type CallTypes = ReturnType<typeof openCallTypes>

function itemsOf(message: Members, path: string, calls: CallTypes, ids: Ids, marks: boolean): Members[] {
  const role = own(message, 'role')
  // The sound of an earlier turn is stored at its upstream.
  if (isMembers(own(message, 'audio'))) throw unsupported(`${path}.audio`)
  if (role === 'assistant') return assistantItems(message, calls, ids)
  if (role === 'function')
    return [{ type: 'function_call_output', call_id: calls.lastFunction(), output: contentOf(message, path, marks) ?? '' }]
  if (role !== 'tool') return [{ type: 'message', role, content: contentOf(message, path, marks) ?? '' }]
  const { id } = openCallId(ownText(message, 'tool_call_id'), ids)
  return [
    {
      type: calls.isCustom(id) ? 'custom_tool_call_output' : 'function_call_output',
      call_id: id,
      output: contentOf(message, path, marks) ?? '',
    },
  ]
}

function assistantItems(message: Members, calls: CallTypes, ids: Ids): Members[] {
  const reasoning = replayedReasoning(message, ids).flatMap(({ item }): Members[] => (item ? [item] : []))
  const text = textOf(own(message, 'content')) || textOf(own(message, 'refusal'))
  const called = (own(message, 'tool_calls') ?? []) as Members[]
  const legacy = own(message, 'function_call')
  return [
    ...reasoning,
    ...(text === '' ? [] : [{ type: 'message', role: 'assistant', content: text }]),
    ...called.map((call) => callItem(call, calls, ids)),
    ...(isMembers(legacy) ? [functionCall(calls.nextFunction(), legacy)] : []),
  ]
}

function callItem(call: Members, calls: CallTypes, ids: Ids): Members {
  const { id } = openCallId(ownText(call, 'id'), ids)
  const custom = own(call, 'custom')
  if (!isMembers(custom)) return functionCall(id, (own(call, 'function') ?? {}) as Members)
  calls.addCustom(id)
  return { type: 'custom_tool_call', call_id: id, name: own(custom, 'name'), input: own(custom, 'input') ?? '' }
}

function functionCall(id: string, called: Members): Members {
  return { type: 'function_call', call_id: id, name: own(called, 'name'), arguments: own(called, 'arguments') ?? '' }
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === 'string' ? content : ''
  return content
    .filter(isMembers)
    .map((part) => own(part, 'text') ?? own(part, 'refusal'))
    .filter((text) => typeof text === 'string')
    .join('\n')
}

function contentOf(message: Members, path: string, marks: boolean): unknown {
  const content = own(message, 'content')
  if (!Array.isArray(content)) return content
  return content.flatMap((part: unknown, index) => {
    if (!isMembers(part)) return []
    const built = partOf(part, `${path}.content[${index}]`)
    const mark = own(part, 'cache_control')
    return marks && isMembers(mark) ? { ...built, cache_control: mark } : built
  })
}

function partOf(part: Members, path: string): Members {
  const type = own(part, 'type')
  const image = own(part, 'image_url')
  const file = own(part, 'file')
  // The address alone is no form of the wire, but many servers take it.
  if (type === 'image_url' && typeof image === 'string') return { type: 'input_image', image_url: image, detail: 'auto' }
  if (type === 'image_url' && isMembers(image))
    return { type: 'input_image', image_url: own(image, 'url'), detail: own(image, 'detail') ?? 'auto' }
  if (type === 'file' && isMembers(file)) return { type: 'input_file', ...file }
  const text = own(part, 'text') ?? own(part, 'refusal')
  if (typeof text !== 'string') throw unsupported(path)
  return { type: 'input_text', text }
}
