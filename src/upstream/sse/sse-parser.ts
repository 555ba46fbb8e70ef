/**
 * Parser of server-sent events (WHATWG HTML, section 9.2) from chunks that may be split anywhere. Text is bytes read as latin1, so that it
 * can be written again unchanged.
 */

/** A larger event ends the stream. */
const MAX_EVENT_BYTES = 32 * 1024 * 1024

export type SseParser = {
  push(chunk: Buffer): void
  /** The stream ended: emits an event that lacks its final blank line. */
  end(): void
}

/**
 * Calls `onEvent` with the data of each event and its name ('' when it has none). Skips comments, `id` and `retry`. Throws a RangeError when
 * an event exceeds `MAX_EVENT_BYTES`.
 */
export function openSseParser(onEvent: (data: string, event: string) => void): SseParser {
  let parts: string[] = []
  let length = 0
  let data: string | null = null
  let event = ''
  let first = true

  function parseLine(text: string): void {
    if (text === '') {
      if (data !== null) onEvent(data, event)
      data = null
      event = ''
      return
    }
    if (text.startsWith('data:')) {
      const value = text.slice(text.charCodeAt(5) === 0x20 ? 6 : 5)
      data = data === null ? value : `${data}\n${value}`
      if (data.length > MAX_EVENT_BYTES) throw new RangeError('an event is too large')
    } else if (text.startsWith('event:')) {
      event = text.slice(text.charCodeAt(6) === 0x20 ? 7 : 6)
    }
  }

  function append(text: string): void {
    parts.push(text)
    length += text.length
    if (length > MAX_EVENT_BYTES) throw new RangeError('an event is too large')
    // Joined only when a line may end, so that an event of many chunks is copied once and not once per chunk.
    if (!/[\r\n]/.test(text) && !endsWithCr(parts.at(-2))) return
    let whole = parts.length === 1 ? text : parts.join('')
    if (first && whole.length < 3) return
    if (first && whole.startsWith('\xEF\xBB\xBF')) whole = whole.slice(3)
    first = false
    const rest = eachLine(whole, parseLine)
    parts = rest === '' ? [] : [flat(rest)]
    length = rest.length
  }

  return {
    push: (chunk) => append(chunk.toString('latin1')),
    end() {
      for (const text of `${parts.join('')}\n`.split(/\r\n|\r|\n/)) parseLine(text)
      parts = []
    },
  }
}

/**
 * Calls `onLine` with each complete line (LF, CR LF or CR) and returns the rest. A CR at the end may be half of a CR LF, so it stays in the
 * rest.
 */
function eachLine(text: string, onLine: (line: string) => void): string {
  let start = 0
  let cr = text.indexOf('\r')
  for (;;) {
    const lf = text.indexOf('\n', start)
    if (cr >= 0 && cr < start) cr = text.indexOf('\r', start)
    if (cr >= 0 && (lf < 0 || cr < lf)) {
      if (cr === text.length - 1) return text.slice(start)
      onLine(text.slice(start, cr))
      start = cr + (text.charCodeAt(cr + 1) === 0x0a ? 2 : 1)
    } else if (lf >= 0) {
      onLine(text.slice(start, lf))
      start = lf + 1
    } else {
      return text.slice(start)
    }
  }
}

/** A copy of bytes that retains nothing else: a slice retains the text that it was cut from, and a sum all its parts. */
export function flat(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('latin1')
}

/** Most events are ASCII, and equal in both forms. */
const BEYOND_ASCII = /[\u0080-\uffff]/

/** Encodes text as UTF-8 bytes in a latin1 string. */
export function bytesOf(text: string): string {
  return BEYOND_ASCII.test(text) ? Buffer.from(text).toString('latin1') : text
}

/** Decodes UTF-8 bytes in a latin1 string. */
export function textOf(bytes: string): string {
  return BEYOND_ASCII.test(bytes) ? Buffer.from(bytes, 'latin1').toString('utf8') : bytes
}

function endsWithCr(text: string | undefined): boolean {
  return text !== undefined && text.endsWith('\r')
}
