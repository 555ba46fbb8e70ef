/** The system prompt and messages of a Messages request as instructions and input items of a Responses request. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import { invalid } from '../../wires/coding-request-validation.ts'
import { replayedReasoning } from './thinking-signature.ts'

/** Where an item and its parts stand in the client's request. */
export type Place = { item: string; parts: string[] }

export type Input = { items: Members[]; places: Place[] }

type Parts = { parts: Members[]; places: string[] }

/** The text of `system`; '' without one. */
export function instructionsOf(system: unknown): string {
  if (typeof system === 'string') return system
  return (Array.isArray(system) ? (system as Members[]) : [])
    .map((block) => ownText(block, 'text'))
    .filter((text) => text !== '')
    .join('\n\n')
}

/** The items of validated messages, and their places. Throws `invalid_request` for a block that no wire but Messages can carry. */
export function inputItems(messages: readonly Members[]): Input {
  const input: Input = { items: [], places: [] }
  const lastOfUser = messages.findLastIndex((message) => own(message, 'role') === 'user')
  for (const [index, message] of messages.entries()) {
    const isOver = own(message, 'clear_at') === 'next_user_message' && index < lastOfUser
    if (!isOver) addMessage(input, message, `messages[${index}]`)
  }
  return input
}

function addMessage(input: Input, message: Members, path: string): void {
  const role = own(message, 'role')
  const content = own(message, 'content')
  const itemRole = role === 'system' ? 'developer' : role
  const blocks: Members[] = typeof content === 'string' ? [{ type: 'text', text: content }] : ((content ?? []) as Members[])
  let open: Parts = { parts: [], places: [] }

  function add(item: Members, parts: string[], place: string): void {
    input.items.push(item)
    input.places.push({ item: place, parts })
  }

  function endMessage(): void {
    if (open.parts.length > 0) add({ type: 'message', role: itemRole, content: open.parts }, open.places, path)
    open = { parts: [], places: [] }
  }

  for (const [index, block] of blocks.entries()) {
    const place = typeof content === 'string' ? `${path}.content` : `${path}.content[${index}]`
    const item = itemOf(block, place)
    if (item === 'none') continue
    if (item) {
      endMessage()
      add(item.item, item.parts, place)
    } else addParts(open, block, place, role === 'assistant' ? 'output_text' : 'input_text')
  }
  endMessage()
}

/** A block that is an item of its own; null for a part of a message, `none` for one that is left out. */
function itemOf(block: Members, place: string): { item: Members; parts: string[] } | 'none' | null {
  const type = own(block, 'type')
  if (type === 'thinking' || type === 'redacted_thinking') {
    const item = replayedReasoning(block)
    return item ? { item, parts: [] } : 'none'
  }
  if (type === 'tool_use') {
    const called = { name: own(block, 'name'), arguments: JSON.stringify(own(block, 'input') ?? {}) }
    return { item: { type: 'function_call', call_id: own(block, 'id'), ...called }, parts: [] }
  }
  // They are among the tools of the request.
  if (type === 'tool_addition' || type === 'tool_removal') return 'none'
  if (type !== 'tool_result') return null
  const { output, places } = toolOutput(block, place)
  return { item: { type: 'function_call_output', call_id: own(block, 'tool_use_id'), output }, parts: places }
}

/** The wire has no member for a failed tool: its output says so. */
function toolOutput(block: Members, place: string): { output: unknown; places: string[] } {
  const content = own(block, 'content') ?? ''
  const failed = own(block, 'is_error') === true
  if (typeof content === 'string') return { output: failed ? `Error: ${content}` : content, places: [] }
  const { parts, places }: Parts = { parts: [], places: [] }
  for (const [index, one] of (content as Members[]).entries()) addParts({ parts, places }, one, `${place}.content[${index}]`, 'input_text')
  if (!failed) return { output: parts, places }
  return { output: [{ type: 'input_text', text: 'Error:' }, ...parts], places: [place, ...places] }
}

function addParts(to: Parts, block: Members, place: string, textType: string): void {
  for (const part of partsOf(block, place, textType)) {
    to.parts.push(part)
    to.places.push(place)
  }
}

function partsOf(block: Members, place: string, textType: string): Members[] {
  const text = (value: string): Members[] => (value === '' ? [] : [{ type: textType, text: value }])
  switch (own(block, 'type')) {
    case 'text':
      return text(ownText(block, 'text'))
    case 'image':
      return [{ type: 'input_image', image_url: addressOf(block, place), detail: 'auto' }]
    case 'document':
      return documentParts(block, place, text)
    case 'search_result':
      return text([ownText(block, 'title'), ownText(block, 'source'), textOf(own(block, 'content'))].filter((one) => one !== '').join('\n'))
    case 'tool_reference':
      return text(`Tool available: ${ownText(block, 'tool_name')}`)
    default:
      throw invalid(place, `${place}: blocks of the type ${nameOf(own(block, 'type'))} are not supported.`)
  }
}

function documentParts(block: Members, place: string, text: (value: string) => Members[]): Members[] {
  const source = own(block, 'source')
  const title = ownText(block, 'title')
  if (!isMembers(source)) throw invalid(`${place}.source`, `${place}.source must be an object.`)
  const type = own(source, 'type')
  const heading = text([title, ownText(block, 'context')].filter((one) => one !== '').join('\n'))
  if (type === 'text') return [...heading, ...text(ownText(source, 'data'))]
  if (type === 'content') {
    const content = own(source, 'content')
    if (!Array.isArray(content)) return [...heading, ...text(typeof content === 'string' ? content : '')]
    return [...heading, ...(content as unknown[]).flatMap((one) => (isMembers(one) ? partsOf(one, place, 'input_text') : []))]
  }
  const address = addressOf(block, place)
  return [
    type === 'url'
      ? { type: 'input_file', file_url: address }
      : { type: 'input_file', filename: title === '' ? 'document.pdf' : title, file_data: address },
  ]
}

/** The address of a source, or its data as a data URL. */
function addressOf(block: Members, place: string): string {
  const source = own(block, 'source')
  const type = isMembers(source) ? own(source, 'type') : undefined
  const value = isMembers(source) ? own(source, type === 'url' ? 'url' : 'data') : undefined
  if (type === 'file') throw invalid(`${place}.source`, `${place}.source: stored files are not offered. Send the data itself.`)
  if ((type !== 'base64' && type !== 'url') || !isMembers(source) || typeof value !== 'string')
    throw invalid(`${place}.source`, `${place}.source must have the type base64, with media_type and data, or the type url, with url.`)
  return type === 'url' ? value : `data:${ownText(source, 'media_type')};base64,${value}`
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === 'string' ? content : ''
  return (content as unknown[]).map((one) => (isMembers(one) ? ownText(one, 'text') : '')).join('\n')
}

/** A type as it may be quoted in a sentence. */
function nameOf(type: unknown): string {
  return typeof type === 'string' && /^[a-z][a-z0-9_]{0,63}$/.test(type) ? type : 'that was sent'
}
