/** Header fields of settings. */

const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/

/** True if a field of this name and value can be sent: a token (RFC 9110, section 5.6.2), and no control characters but tabs, or characters beyond one byte. */
export function isHeaderField(name: string, value: string): boolean {
  return TOKEN.test(name) && VALUE.test(value)
}
