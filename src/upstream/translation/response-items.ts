/** Writes the items of a response, and the events that announce them, in the order of the Responses wire. */
import type { Members } from '../wires/allowlist.ts'
import { BadAnswer } from '../wires/wire.ts'
import { customInput, type ChatTools } from './responses-to-chat/chat-tools.ts'

/** The output stays in memory until its last event repeats it; a larger one breaks the stream. */
const MAX_OUTPUT_LENGTH = 16 * 1024 * 1024

export type ItemStatus = 'completed' | 'incomplete'

/** Sends one event; its `sequence_number` is added by the receiver. */
export type Emit = (event: Members) => void

type PartType = 'output_text' | 'refusal' | 'reasoning_text'

export type ResponseItem = {
  /** The parts so far. */
  content: Members[]
  /** Adds text to the last part, or to a new one if that is of another type. `logprobs`: of the tokens of an `output_text`. */
  text(type: PartType, delta: string, logprobs?: Members[]): void
  /** Adds an annotation to the last text. */
  annotation(annotation: Members): void
  /** Ends its last part, and itself with these members. */
  end(status: ItemStatus, members?: Members): void
}

export type ResponseCall = {
  /** Sends a part of the arguments. The input of a custom tool is one JSON string in them: it is sent when it is complete. */
  delta(json: string): void
  end(status: ItemStatus): void
}

export type ResponseItems = {
  /** The items so far, finished or in progress. */
  items: Members[]
  /** Counts a text of the answer, and returns it. Throws `BadAnswer` for too much output. */
  counted(text: string): string
  /** Adds a text to where the last one went, without an event. Throws `BadAnswer` for too much output. */
  grow(text: string): void
  /** Adds an item. One with `content` gets the parts that are added to it. */
  add(members: Members): ResponseItem
  /** Adds a call of the client's tool for a function's name. `idOf` returns the id of the item for its prefix. */
  call(name: string, callId: string, idOf: (prefix: string) => string): ResponseCall
}

export function openResponseItems(tools: ChatTools, emit: Emit): ResponseItems {
  const items: Members[] = []
  let length = 0
  let growLast = (_text: string): void => {}

  function counted(text: string): string {
    length += text.length
    if (length > MAX_OUTPUT_LENGTH) throw new BadAnswer('the answer is too large')
    return text
  }

  function added(item: Members): ResponseItem & { place: Members } {
    const index = items.length
    const place = { item_id: item['id'], output_index: index }
    const content: Members[] = []
    const at = () => ({ ...place, content_index: content.length - 1 })
    items.push(item)
    emit({ type: 'response.output_item.added', output_index: index, item })

    function partOf(type: PartType): Members {
      const last = content.at(-1)
      if (last?.['type'] === type) return last
      endPart()
      const lists = type === 'output_text' ? { annotations: [], logprobs: [] } : {}
      const part: Members = { type, [memberOf(type)]: '', ...lists }
      content.push(part)
      emit({ type: 'response.content_part.added', ...at(), part: structuredClone(part) })
      return part
    }

    function growPart(text: string): void {
      const part = content.at(-1)
      const name = memberOf(part?.['type'])
      if (part) part[name] = String(part[name]) + text
    }

    function endPart(): void {
      const part = content.at(-1)
      if (!part) return
      const { type, annotations: _repeated, ...written } = part
      emit({ type: `response.${String(type)}.done`, ...at(), ...written })
      emit({ type: 'response.content_part.done', ...at(), part })
    }

    return {
      place,
      content,
      text(type, delta, logprobs = []) {
        const part = partOf(type)
        if (delta === '') return
        growLast = growPart
        growPart(delta)
        for (const token of logprobs) (part['logprobs'] as Members[]).push(token)
        emit({ type: `response.${type}.delta`, ...at(), delta, ...(type === 'output_text' ? { logprobs } : {}) })
      },
      annotation(annotation) {
        const annotations = partOf('output_text')['annotations'] as Members[]
        annotations.push(annotation)
        emit({ type: 'response.output_text.annotation.added', ...at(), annotation_index: annotations.length - 1, annotation })
      },
      end(status, members = {}) {
        endPart()
        const done = { ...item, status, ...('content' in item ? { content } : {}), ...members }
        items[index] = done
        emit({ type: 'response.output_item.done', output_index: index, item: done })
      },
    }
  }

  return {
    items,
    add: added,
    counted,
    grow: (text) => growLast(counted(text)),
    call(functionName, callId, idOf) {
      const { name, namespace, custom } = tools.clientTool(functionName)
      const [type, member, events] = custom
        ? ['custom_tool_call', 'input', 'custom_tool_call_input']
        : ['function_call', 'arguments', 'function_call_arguments']
      const named = { call_id: callId, name, ...(namespace === null ? {} : { namespace }) }
      const item = added({ id: idOf(custom ? 'ctc_' : 'fc_'), type, status: 'in_progress', ...named, [member]: '' })
      const send = (delta: string) => emit({ type: `response.${events}.delta`, ...item.place, delta })
      let given = ''
      const growCall = (json: string) => void (given += json)
      return {
        delta(json) {
          growLast = growCall
          growCall(json)
          if (!custom && json !== '') send(json)
        },
        end(status) {
          const text = custom ? customInput(given) : given
          if (custom) send(text)
          emit({ type: `response.${events}.done`, ...item.place, ...(custom ? {} : { name }), [member]: text })
          item.end(status, { [member]: text })
        },
      }
    },
  }
}

const memberOf = (type: unknown) => (type === 'refusal' ? 'refusal' : 'text')
