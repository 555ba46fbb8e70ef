/** Size in bytes of the prompt that an upstream is sent, for the estimate of its tokens. Inline images and files count at a flat rate. */
import { loadedTools } from '../policy/current-tools.ts'
import { offeredToolMembers } from '../policy/hosted-tools.ts'
import { isMembers, own, ownText, type Members } from '../wires/allowlist.ts'
import type { WireName } from '../wires/wire.ts'

/** The tokens of an image depend on its dimensions and not on its base64 text: each counts as this many bytes. */
const IMAGE_BYTES = 4096
/** A file or a sound counts as an image for each started piece of so many characters of its base64 text. */
const FILE_PIECE = 64 * 1024
/** What JSON puts around a member or an entry: quotes, colon, comma. */
const PUNCTUATION = 4

/** The members that a model reads, beside `tools`. Others, such as `metadata`, cost no tokens. */
const READ = [
  'messages',
  'input',
  'system',
  'instructions',
  'prompt',
  'prediction',
  'functions',
  'response_format',
  'text',
  'output_config',
  'output_format',
  'context_management',
]
const IMAGES = ['image_url', 'input_image', 'computer_screenshot', 'image']
/** The member of a part that holds the data, or the object with it. */
const FILES: Record<string, readonly string[]> = {
  file: ['file'],
  input_file: ['file_data'],
  input_audio: ['input_audio'],
}
/** The members of these objects that hold base64 text. */
const DATA = ['file_data', 'data']
/** The sources of a document of the Messages wire that are files. Those of other types are text. */
const FILE_SOURCES: unknown[] = ['base64', 'url']
const TEXT_FILE = /^data:(?:text\/|application\/(?:json|xml|yaml|x-yaml|toml))/i

const NONE: ReadonlySet<string> = new Set()

/**
 * The bytes of the members that a model reads, in a body that its reader has validated: without undocumented members of messages, and here without tools
 * that are not `allowed` or not loaded. Images, files and sounds count at
 * their rate in content parts of those types only: text that looks like a data URL is text.
 */
export function promptBytes(wire: WireName, body: Members, allowed: ReadonlySet<string>): number {
  let size = 0
  for (const name of READ) size += bytesIn(own(body, name), name === 'messages' || name === 'input' ? 'messages' : 'plain')
  const tools = wire === 'messages' ? loadedTools(body) : own(body, 'tools')
  if (Array.isArray(tools)) size += bytesIn(offeredToolMembers(wire, { tools }, { allow: allowed, drop: NONE })['tools'], 'plain')
  return size
}

/** Where a value stands: only what is inside the content of a message or item is a content part. */
export type Place = 'messages' | 'parts' | 'plain'

function bytesIn(value: unknown, place: Place): number {
  if (typeof value === 'string') return Buffer.byteLength(value)
  if (typeof value !== 'object' || value === null) return value === undefined ? 0 : PUNCTUATION
  let size = 0
  if (Array.isArray(value)) {
    for (const entry of value) size += PUNCTUATION + bytesIn(entry, place)
    return size
  }
  const members = value as Members
  const media = place === 'parts' ? mediaBytes(members) : null
  if (media !== null) return media
  for (const name in members) size += name.length + PUNCTUATION + bytesIn(members[name], placeOf(name, place))
  return size
}

/** The bytes that an image, a file or a sound counts as; null for other content parts. */
export function mediaBytes(part: Members): number | null {
  const type = ownText(part, 'type')
  if (IMAGES.includes(type)) return IMAGE_BYTES
  if (type === 'document') return documentBytes(part)
  return Object.hasOwn(FILES, type) ? fileBytes(part, FILES[type] as readonly string[]) : null
}

/** The place of a member of what stands at `holder`. */
export function placeOf(name: string, holder: Place): Place {
  return holder !== 'plain' && (name === 'content' || name === 'output') ? 'parts' : 'plain'
}

function fileBytes(part: Members, names: readonly string[]): number {
  let size = IMAGE_BYTES
  for (const name of names) {
    const value = own(part, name)
    for (const data of isMembers(value) ? DATA.map((inner) => own(value, inner)) : [value])
      if (typeof data === 'string') size += dataBytes(data)
  }
  return size
}

/** A document of the Messages wire, with its title and context. Its source is a file, text, or content parts. */
function documentBytes({ source, ...others }: Members): number {
  const size = bytesIn(others, 'plain')
  if (!isMembers(source) || !FILE_SOURCES.includes(own(source, 'type'))) return size + bytesIn(source, 'messages')
  const { data, url, ...rest } = source
  const head = `data:${String(own(source, 'media_type'))}`
  const file = (typeof data === 'string' ? dataBytes(data, head) : 0) + (typeof url === 'string' ? dataBytes(url) : 0)
  return size + IMAGE_BYTES + file + bytesIn(rest, 'messages')
}

/** Of base64 text, four characters hold three bytes. `head`: what names its type, which a data URL does itself. */
function dataBytes(data: string, head = data): number {
  return TEXT_FILE.test(head) ? Math.ceil((data.length * 3) / 4) : IMAGE_BYTES * Math.floor(data.length / FILE_PIECE)
}
