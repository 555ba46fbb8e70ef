/** The output of a response built from the deltas of a chat completion. A whole message is one delta. */
import { isMembers, type Members } from '../../wires/allowlist.ts'
import type { Ids } from '../../wires/encrypted-ids.ts'
import { openDetailFragments, sealReasoning } from '../../wires/sealed-members.ts'
import type { OutputMeter } from '../../usage/output-meter.ts'
import type { ChatTools } from './chat-tools.ts'
import { flatAnnotations, responseLogprobs } from '../annotations.ts'
import { openResponseItems, type Emit, type ItemStatus, type ResponseItem, type ResponseItems } from '../response-items.ts'
import { openCalls } from './response-calls.ts'

export type ResponseOutput = Pick<ResponseItems, 'grow'> & {
  /** Adds the `delta` or `message` of a choice, with the choice's `logprobs`. Throws `BadAnswer` for too much output. */
  add(delta: Members, logprobs: unknown): void
  /** Ends all items; `incomplete` is the status of those that the cut-off may have hit. */
  end(status: ItemStatus): void
  /** The items so far. */
  items: Members[]
}

type Reasoning = { item: ResponseItem; member: 'reasoning_content' | 'reasoning' }

export function openResponseOutput(tools: ChatTools, ids: Ids, meter: OutputMeter, emit: Emit): ResponseOutput {
  const output = openResponseItems(tools, emit)
  const calls = openCalls(output, ids)
  const fragments = openDetailFragments()
  let message: ResponseItem | null = null
  let reasoning: Reasoning | null = null

  function metered(text: string): string {
    meter.addText(text)
    return output.counted(text)
  }

  function endText(status: ItemStatus): void {
    if (reasoning) {
      const { item, member } = reasoning
      const text = String(item.content[0]?.['text'] ?? '')
      const details = fragments.release(0)
      item.end(status, { encrypted_content: sealReasoning(details ? { details } : { text: { member, text } }, ids) })
    }
    message?.end(status)
    reasoning = message = null
  }

  function currentReasoning(): Reasoning {
    if (reasoning) return reasoning
    endText('completed')
    const item = output.add({ id: ids.fresh('rs_'), type: 'reasoning', status: 'in_progress', summary: [], content: [] })
    return (reasoning = { item, member: 'reasoning' })
  }

  function currentMessage(): ResponseItem {
    if (message) return message
    endText('completed')
    return (message = output.add({ id: ids.fresh('msg_'), type: 'message', status: 'in_progress', role: 'assistant', content: [] }))
  }

  return {
    items: output.items,
    grow: output.grow,
    add(delta, logprobs) {
      const [member, thought] = reasoningIn(delta)
      const details = delta['reasoning_details']
      if (thought !== '') Object.assign(currentReasoning(), { member }).item.text('reasoning_text', metered(thought))
      if (Array.isArray(details) && details.length > 0) {
        currentReasoning()
        fragments.take(0, delta)
      }
      const text = textOf(delta['content'])
      if (text !== '') currentMessage().text('output_text', metered(text), responseLogprobs(logprobs, ids))
      if (typeof delta['refusal'] === 'string' && delta['refusal'] !== '') currentMessage().text('refusal', metered(delta['refusal']))
      for (const annotation of flatAnnotations(delta['annotations'], ids)) currentMessage().annotation(annotation)
      for (const call of callsIn(delta)) {
        endText('completed')
        for (const piece of calls.add(call)) metered(piece)
      }
    },
    end(status) {
      endText(status)
      calls.end(status)
    },
  }
}

/** Some servers send both members with the same text. */
function reasoningIn(delta: Members): ['reasoning_content' | 'reasoning', string] {
  if (typeof delta['reasoning_content'] === 'string') return ['reasoning_content', delta['reasoning_content']]
  return ['reasoning', typeof delta['reasoning'] === 'string' ? delta['reasoning'] : '']
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === 'string' ? content : ''
  return content.map((part: unknown) => (isMembers(part) && typeof part['text'] === 'string' ? part['text'] : '')).join('')
}

/** Tool calls, and the single call of servers that only have `function_call`. */
function callsIn(delta: Members): Members[] {
  if (Array.isArray(delta['tool_calls']))
    return delta['tool_calls'].map((call: unknown, index) => (isMembers(call) ? { index, ...call } : {}))
  return isMembers(delta['function_call']) ? [{ index: 0, function: delta['function_call'] }] : []
}
