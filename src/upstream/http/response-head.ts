/**
 * The head of a response (RFC 9112, sections 4 to 6), read strictly: what is not of the grammar is refused, and so is what leaves open
 * where the body ends.
 */

/** An upstream sent something that is not HTTP/1.1, or that nobody asked for. */
export class ProtocolError extends Error {}

/** Of the fields those that are needed; '' for one that is missing. */
export type ResponseHead = {
  status: number
  /** The bytes of the body, unless it is in chunks or ends with the connection. */
  body: number | 'chunked' | 'close'
  /** How long the connection may be idle after the response, in milliseconds; 0 when it cannot be used again. */
  keepMs: number
  contentType: string
  contentEncoding: string
  retryAfter: string
}

const KEEP_MS = 30_000
/** Of a time that the server announces: it may close the connection while a request is on its way. */
const MARGIN_MS = 2000
const MAX_KEEP_MS = 600_000

const HEAD = /^HTTP\/1\.([01]) ([1-9]\d\d)(?: [\t -~\x80-\xff]*)?\r\n(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)*\r\n$/
const TRAILERS = /^\r\n(?:(?!content-length:|transfer-encoding:)[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t -~\x80-\xff]*\r\n)*\r\n$/i
const NEEDED = /^(connection|content-(?:encoding|length|type)|keep-alive|retry-after|transfer-encoding):[\t ]*(.*[^\t \r\n])?/gim
const CLOSE = /(?:^|,)[\t ]*close[\t ]*(?:,|$)/i
const KEEP_ALIVE = /(?:^|,)[\t ]*keep-alive[\t ]*(?:,|$)/i

/** Reads a head with the empty line at its end, as text read as latin1. Throws a `ProtocolError`. */
export function parseHead(text: string): ResponseHead {
  const [, minor = '', status = ''] = HEAD.exec(text) ?? refuse('a head that is malformed')
  const fields: Record<string, string> = {}
  for (const [, name = '', value = ''] of text.matchAll(NEEDED)) {
    const known = name.toLowerCase()
    const before = fields[known]
    // Of lengths and codings a list is refused.
    fields[known] = before === undefined ? value : `${before}, ${value}`
  }
  const {
    connection = '',
    'content-type': contentType = '',
    'content-encoding': contentEncoding = '',
    'retry-after': retryAfter = '',
  } = fields
  const framing = bodyOf(fields['content-length'], fields['transfer-encoding'])
  const hasNone = status === '204' || status === '304'
  const isKept = minor === '1' ? !CLOSE.test(connection) : KEEP_ALIVE.test(connection) && !CLOSE.test(connection) && framing !== 'chunked'
  // A body that must not be there may follow nevertheless.
  const isClear = hasNone ? framing === 'close' || framing === 0 : framing !== 'close'
  const keepMs = isKept && isClear ? keepMsOf(fields['keep-alive']) : 0
  return { status: Number(status), body: hasNone ? 0 : framing, keepMs, contentType, contentEncoding, retryAfter }
}

/** Whether the fields behind the last chunk, between two line ends, are of the grammar, and none says where the body ends. */
export function isTrailerSection(text: string): boolean {
  return TRAILERS.test(text)
}

function bodyOf(length: string | undefined, encoding: string | undefined): ResponseHead['body'] {
  if (encoding === undefined && length === undefined) return 'close'
  if (encoding === undefined)
    return /^\d{1,15}$/.test(length ?? '') ? Number(length) : refuse('a content-length that is no number of bytes')
  if (length !== undefined) return refuse('both content-length and transfer-encoding')
  return encoding.toLowerCase() === 'chunked' ? 'chunked' : refuse('another transfer-encoding than chunked')
}

function keepMsOf(keepAlive: string | undefined): number {
  const announced = /(?:^|,)[\t ]*timeout=(\d{1,9})(?!\d)/i.exec(keepAlive ?? '')?.[1]
  return announced === undefined ? KEEP_MS : Math.max(0, Math.min(Number(announced) * 1000 - MARGIN_MS, MAX_KEEP_MS))
}

function refuse(what: string): never {
  throw new ProtocolError(`the response has ${what}`)
}
