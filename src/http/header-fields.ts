/** Header fields of settings. */

/** In lower case: those that HTTP or the request itself decides, so that no setting may. */
export const RESERVED_HEADERS: ReadonlySet<string> = new Set([
  'host',
  'connection',
  'content-length',
  'content-type',
  'transfer-encoding',
  'accept',
  'accept-encoding',
  'expect',
  'upgrade',
  'te',
  'trailer',
  'keep-alive',
])

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/

/** What is wrong with header fields that a setting has, as the end of a sentence; null when all can be sent and none is `reserved`. */
export function headerFault(headers: Record<string, string>, reserved: ReadonlySet<string>): string | null {
  for (const [name, value] of Object.entries(headers)) {
    if (!isHeaderField(name, value)) return `has an invalid header: ${JSON.stringify(name)}`
    if (reserved.has(name.toLowerCase())) return `must not set ${name}`
  }
  return null
}

/** True if a field of this name and value can be sent: a token (RFC 9110, section 5.6.2), and no control characters but tabs, or characters beyond one byte. */
export function isHeaderField(name: string, value: string): boolean {
  return TOKEN.test(name) && VALUE.test(value)
}
