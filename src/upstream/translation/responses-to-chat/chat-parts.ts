/** Content parts of the Responses wire as parts of the chat wire. */
import { isMembers, own, type Members } from '../../wires/allowlist.ts'
import { unsupported } from '../unsupported-parameter.ts'

export type Part = { type: string; text?: string } & Members

/** The content of an item in its member `name`, a string or parts. Throws `unsupported_parameter` naming a part that chat cannot express. */
export function partsOf(item: Members, path: string, name = 'content'): Part[] {
  const content = own(item, name)
  if (typeof content === 'string') return [{ type: 'text', text: content }]
  if (!Array.isArray(content)) return []
  return content.flatMap((part: unknown, index) => (isMembers(part) ? partOf(part, `${path}[${index}]`) : []))
}

function partOf(part: Members, path: string): Part {
  const type = own(part, 'type')
  const text = own(part, type === 'refusal' ? 'refusal' : 'text')
  if (type === 'input_image') return imageOf(part, path)
  if (type === 'input_file') return fileOf(part, path)
  if (type === 'input_audio') return { type: 'input_audio', input_audio: own(part, 'input_audio') }
  if (typeof text !== 'string') throw unsupported(path)
  return { type: 'text', text }
}

function imageOf(part: Members, path: string): Part {
  const url = own(part, 'image_url')
  const detail = own(part, 'detail')
  if (typeof url !== 'string') throw unsupported(`${path}.file_id`)
  return { type: 'image_url', image_url: { url, ...(typeof detail === 'string' && detail !== 'original' ? { detail } : {}) } }
}

function fileOf(part: Members, path: string): Part {
  const file: Members = {}
  for (const name of ['file_data', 'file_id', 'filename']) if (typeof own(part, name) === 'string') file[name] = own(part, name)
  if (file['file_data'] === undefined && file['file_id'] === undefined) throw unsupported(`${path}.file_url`)
  return { type: 'file', file }
}

/** The text of the parts, one to a line. */
export function textOfParts(parts: readonly Part[]): string {
  return parts.flatMap(({ text }) => text ?? []).join('\n')
}

/** The text of parts at `path`. Throws `unsupported_parameter` for one that is no text. */
export function textOnly(parts: readonly Part[], path: string): string {
  const index = parts.findIndex(({ type }) => type !== 'text')
  if (index >= 0) throw unsupported(`${path}[${index}]`)
  return textOfParts(parts)
}

/** The parts that are no text: images, files, sounds. */
export function mediaParts(parts: readonly Part[]): Part[] {
  return parts.filter(({ type }) => type !== 'text')
}
