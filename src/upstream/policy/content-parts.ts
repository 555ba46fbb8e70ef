/**
 * Content parts of a conversation, rebuilt from their documented members. Notes what they refer to: addresses, which are vetted before an
 * upstream may fetch them, and what is stored at an upstream, which is refused unless it is allowed.
 */
import { invalid } from '../wires/coding-request-validation.ts'
import { isMembers, own, type Members } from '../wires/allowlist.ts'
import type { WireName } from '../wires/wire.ts'
import { holderOfEntries, rebuiltEntries } from './citations-and-tool-results.ts'
import { isClientTool, plainMembers } from './hosted-tools.ts'
import { lists } from './request-policy.ts'

/** An http address in a conversation. */
export type Address = {
  url: string
  /** Its place, for `param`. */
  param: string
  kind: 'image' | 'file'
  /** Puts the data in its place. `name`: of the file. */
  inline(dataUrl: string, name: string): void
}

/** What a conversation refers to. `allowed`: what every upstream of this installation allows. */
export type References = { addresses: Address[]; allowed: ReadonlySet<string> }

const PARTS: Record<WireName, Record<string, readonly string[]>> = {
  chat: {
    text: ['text', 'cache_control'],
    refusal: ['refusal'],
    image_url: ['image_url', 'cache_control'],
    input_audio: ['input_audio'],
    file: ['file', 'cache_control'],
  },
  responses: {
    input_text: ['text'],
    output_text: ['text', 'annotations', 'logprobs'],
    text: ['text'],
    summary_text: ['text'],
    reasoning_text: ['text'],
    refusal: ['refusal'],
    input_image: ['image_url', 'file_id', 'detail'],
    input_file: ['file_data', 'file_id', 'file_url', 'filename', 'detail'],
    input_audio: ['input_audio'],
    computer_screenshot: ['image_url', 'file_id'],
    encrypted_content: ['encrypted_content'],
  },
  messages: {
    text: ['text', 'cache_control', 'citations'],
    image: ['source', 'cache_control'],
    document: ['source', 'title', 'context', 'citations', 'cache_control'],
    search_result: ['source', 'title', 'content', 'citations', 'cache_control'],
    thinking: ['thinking', 'signature'],
    redacted_thinking: ['data'],
    tool_use: ['id', 'name', 'toolset_name', 'input', 'cache_control'],
    tool_result: ['tool_use_id', 'content', 'is_error', 'cache_control'],
    tool_reference: ['tool_name', 'cache_control'],
    server_tool_use: ['id', 'name', 'input', 'cache_control'],
    web_search_tool_result: ['tool_use_id', 'content', 'cache_control'],
    tool_search_tool_result: ['tool_use_id', 'content', 'cache_control'],
    tool_addition: ['tool', 'cache_control'],
    tool_removal: ['tool', 'cache_control'],
  },
}
/** The members of the objects in a part. */
const NESTED: Record<string, readonly string[]> = {
  image_url: ['url', 'detail'],
  file: ['file_data', 'file_id', 'filename'],
  input_audio: ['data', 'format'],
  source: ['type', 'media_type', 'data', 'url', 'file_id', 'content'],
  cache_control: ['type', 'ttl'],
}

/** The parts of the Messages wire whose content is parts. */
const HOLDERS = ['tool_result', 'search_result']

/** Throws `invalid_request` for a part that is not offered. */
export function cleanParts(wire: WireName, parts: unknown[], param: string, references: References): unknown[] {
  return parts.map((part, index) => (isMembers(part) ? cleanPart(wire, part, `${param}[${index}]`, references) : part))
}

/** The known members of a content part; adds its addresses and files to `references`. Throws `invalid_request` at `param` for a part of an unknown type. */
export function cleanPart(wire: WireName, part: Members, param: string, references: References): Members {
  const type = own(part, 'type')
  const name = typeof type === 'string' ? type : ''
  const known = Object.hasOwn(PARTS[wire], name) ? PARTS[wire][name] : undefined
  if (!known && !references.allowed.has(`part:${name}`))
    throw invalid(`${param}.type`, `${param}.type must be one of ${Object.keys(PARTS[wire]).join(', ')}.`)
  const cleaned = known ? picked(part, ['type', ...known]) : { ...plainMembers(part) }
  const { tool } = cleaned
  if (wire === 'messages' && isMembers(tool)) cleaned['tool'] = cleanTool(tool, `${param}.tool`)
  const entries = wire === 'messages' ? holderOfEntries(name) : undefined
  if (entries && entries in cleaned) cleaned[entries] = rebuiltEntries(cleaned[entries])
  for (const name of Object.keys(cleaned)) {
    const value = cleaned[name]
    if (isMembers(value) && NESTED[name]) cleaned[name] = picked(value, NESTED[name])
    const holder = cleaned[name]
    // The input of a tool is data of the client, whatever its names are; entries are read already.
    if (isMembers(holder) && name !== 'input' && name !== entries) cleanHolder(wire, type, holder, `${param}.${name}`, references)
  }
  noteReferences(wire, cleaned, param, references)
  const { content } = cleaned
  if (wire === 'messages' && HOLDERS.includes(name) && Array.isArray(content))
    cleaned['content'] = cleanParts(wire, content, `${param}.content`, references)
  return cleaned
}

/** The tool that a part adds or takes away: a reference, or a definition of one that the client runs. Throws `invalid_request` for others. */
function cleanTool(given: Members, param: string): Members {
  const tool = { ...plainMembers(given) }
  const { type, definition } = tool
  if (isMembers(definition)) {
    if (!isClientTool(definition)) throw invalid(`${param}.definition`, `${param}.definition must be a tool that the client runs.`)
    tool['definition'] = plainMembers(definition)
  } else if (!(typeof type === 'string' && type.endsWith('_reference')) && !isClientTool(tool))
    throw invalid(param, `${param} must be a tool_reference, or a tool_definition of a tool that the client runs.`)
  return tool
}

function cleanHolder(wire: WireName, type: unknown, holder: Members, param: string, references: References): void {
  const kind = type === 'document' ? 'file' : undefined
  noteReferences(wire, holder, param, references, kind)
  const { content } = holder
  if (wire === 'messages' && Array.isArray(content)) holder['content'] = cleanParts(wire, content, `${param}.content`, references)
}

function picked(holder: Members, names: readonly string[]): Members {
  const built: Members = {}
  for (const name of names) {
    const value = own(holder, name)
    if (value !== undefined) built[name] = value
  }
  return built
}

/** Members that hold an address: `url`, `image_url`, `file_url` and the like. */
const ADDRESS = /(?:^|_)url$/

function noteReferences(wire: WireName, holder: Members, param: string, { addresses, allowed }: References, of?: Address['kind']): void {
  if ((holder['file_id'] ?? null) !== null) {
    if (!lists(allowed, wire, 'file_id'))
      throw invalid(`${param}.file_id`, `${param}.file_id: stored files are not offered. Send the data itself.`)
  }
  for (const [name, value] of Object.entries(holder)) {
    if (typeof value !== 'string' || !ADDRESS.test(name) || /^data:/i.test(value)) continue
    const kind = of ?? (name === 'file_url' ? 'file' : 'image')
    addresses.push({ url: value, param: `${param}.${name}`, kind, inline: inliner(holder, name) })
  }
}

function inliner(holder: Members, name: string): Address['inline'] {
  return (dataUrl, filename) => {
    // The source of a block of the Messages wire.
    if (holder['type'] === 'url') return inlineSource(holder, dataUrl)
    if (name !== 'file_url') return void (holder[name] = dataUrl)
    delete holder['file_url']
    holder['file_data'] = dataUrl
    holder['filename'] ??= filename
  }
}

/** The wire takes text as it is, and the data of all else. */
function inlineSource(source: Members, dataUrl: string): void {
  const [, mediaType = '', data = ''] = /^data:([^;,]*);base64,([^]*)$/.exec(dataUrl) ?? []
  const isText = mediaType.startsWith('text/') || mediaType === 'application/json'
  delete source['url']
  Object.assign(
    source,
    isText
      ? { type: 'text', media_type: 'text/plain', data: Buffer.from(data, 'base64').toString('utf8') }
      : { type: 'base64', media_type: mediaType, data },
  )
}
