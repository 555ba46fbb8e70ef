/** Content parts of the Responses wire as content blocks of Messages. */
import { isMembers, own, ownText, type Members } from '../../wires/allowlist.ts'
import { withoutMembers } from '../../policy/request-policy.ts'
import { unsupported } from '../unsupported-parameter.ts'

const DATA_URL = /^data:([^;,]*)(;[^,]*)?,/i

/** The blocks of an item's member `name`, a string or parts; empty texts, which the wire refuses, are left out. Throws `unsupported_parameter` naming a part. */
export function blocksOf(item: Members, path: string, name: 'content' | 'output' = 'content'): Members[] {
  const content = own(item, name)
  if (typeof content === 'string') return textBlocks(content)
  const parts: unknown[] = Array.isArray(content) ? content : isMembers(content) ? [content] : []
  return parts.flatMap((part, index) => (isMembers(part) ? blockOf(part, `${path}.${name}[${index}]`) : []))
}

/** The result of a call. A mark of a cache in its content is its own: the wire counts the marks of all blocks. */
export function resultBlock(callId: string, content: Members[]): Members {
  const mark = content.findLast((block) => own(block, 'cache_control') !== undefined)?.['cache_control']
  const plain = content.map((block) => withoutMembers(block, ['cache_control']))
  return { type: 'tool_result', tool_use_id: callId, content: plain, ...(mark === undefined ? {} : { cache_control: mark }) }
}

function textBlocks(text: string): Members[] {
  return text === '' ? [] : [{ type: 'text', text }]
}

/** With the mark of a cache that a chat client made. */
function blockOf(part: Members, path: string): Members[] {
  const mark = own(part, 'cache_control')
  const blocks = contentOf(part, path)
  return isMembers(mark) ? blocks.map((block) => ({ ...block, cache_control: mark })) : blocks
}

function contentOf(part: Members, path: string): Members[] {
  const type = own(part, 'type')
  if (type === 'input_image' || type === 'computer_screenshot') return [imageOf(part, path)]
  if (type === 'input_file') return [documentOf(part, path)]
  const text = own(part, type === 'refusal' ? 'refusal' : 'text')
  if (typeof text !== 'string') throw unsupported(path)
  return textBlocks(text)
}

function imageOf(part: Members, path: string): Members {
  const url = own(part, 'image_url')
  if (typeof url !== 'string') throw unsupported(`${path}.file_id`)
  const data = base64Of(url)
  return { type: 'image', source: data ? { type: 'base64', ...data } : { type: 'url', url } }
}

/** The wire takes PDF and plain text. */
function documentOf(part: Members, path: string): Members {
  const title = ownText(part, 'filename') === '' ? {} : { title: ownText(part, 'filename') }
  const url = own(part, 'file_url')
  if (typeof url === 'string') return { type: 'document', source: { type: 'url', url }, ...title }
  const file = own(part, 'file_data')
  if (typeof file !== 'string') throw unsupported(`${path}.file_id`)
  const data = base64Of(file)
  if (data?.media_type === 'application/pdf') return { type: 'document', source: { type: 'base64', ...data }, ...title }
  if (!data?.media_type.startsWith('text/')) throw unsupported(`${path}.file_data`)
  const text = Buffer.from(data.data, 'base64').toString('utf8')
  return { type: 'document', source: { type: 'text', media_type: 'text/plain', data: text }, ...title }
}

function base64Of(url: string): { media_type: string; data: string } | null {
  const found = DATA_URL.exec(url)
  if (!found || !/;base64$/i.test(found[2] ?? '')) return null
  return { media_type: (found[1] ?? '').toLowerCase(), data: url.slice(found[0].length) }
}
