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

  /** The line of `text` from `start` to `end`. */
  function parseLine(text: string, start: number, end: number): void {
    if (start === end) {
      if (data !== null) onEvent(data, event)
      data = null
      event = ''
    } else if (text.startsWith('data:', start)) {
      const value = text.slice(valueAt(text, start + 'data:'.length), end)
      data = data === null ? value : `${data}\n${value}`
      if (data.length > MAX_EVENT_BYTES) throw new RangeError('an event is too large')
    } else if (text.startsWith('event:', start)) {
      event = text.slice(valueAt(text, start + 'event:'.length), end)
    }
  }

  function append(text: string): void {
    parts.push(text)
    length += text.length
    if (length > MAX_EVENT_BYTES) throw new RangeError('an event is too large')
    // Joined only when a line may end, so that an event of many chunks is copied once and not once per chunk.
    if (parts.length > 1 && !/[\r\n]/.test(text) && !parts.at(-2)?.endsWith('\r')) return
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
      const rest = parts.join('')
      eachLine(`${rest}\n`, parseLine)
      // The blank line.
      parseLine('', 0, 0)
      parts = []
    },
  }
}

/**
 * Calls `onLine` with each complete line (LF, CR LF or CR) and returns the rest. A CR at the end may be half of a CR LF, so it stays in the
 * rest.
 */
function eachLine(text: string, onLine: (text: string, start: number, end: number) => void): string {
  let start = 0
  let cr = text.indexOf('\r')
  for (;;) {
    const lf = text.indexOf('\n', start)
    if (cr >= 0 && cr < start) cr = text.indexOf('\r', start)
    if (cr >= 0 && (lf < 0 || cr < lf)) {
      if (cr === text.length - 1) return text.slice(start)
      onLine(text, start, cr)
      start = cr + (text.charCodeAt(cr + 1) === 0x0a ? 2 : 1)
    } else if (lf >= 0) {
      onLine(text, start, lf)
      start = lf + 1
    } else {
      return text.slice(start)
    }
  }
}

/** Where the value of a field begins, whose name ends at `at`: after one space. */
function valueAt(text: string, at: number): number {
  return text.charCodeAt(at) === 0x20 ? at + 1 : at
}

/** A copy of bytes that retains nothing else: a slice retains the text that it was cut from, and a sum all its parts. */
export function flat(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('latin1')
}

/** Most events are ASCII, and equal in both forms. */
function isAscii(text: string): boolean {
  return Buffer.byteLength(text) === text.length
}

/** Encodes text as UTF-8 bytes in a latin1 string. */
export function bytesOf(text: string): string {
  return isAscii(text) ? text : Buffer.from(text).toString('latin1')
}

/** Decodes UTF-8 bytes in a latin1 string. */
export function textOf(bytes: string): string {
  return isAscii(bytes) ? bytes : Buffer.from(bytes, 'latin1').toString('utf8')
}
