/**
 * Server-sent events (WHATWG HTML, section 9.2) out of bytes that may be split anywhere. Text is bytes read as latin1, so that it can be
 * written again unchanged.
 */

/** More than any event that a model sends; whoever sends more is cut off. */
const LONGEST_EVENT = 32 * 1024 * 1024

export type SseReader = {
  push(chunk: Buffer): void
  /** The stream ended: an event without its last blank line is still given. */
  end(): void
}

/**
 * `take` gets the data of each event and its name ('' when it has none). Comments, `id` and `retry` are not given. Throws a RangeError on
 * an endless event.
 */
export function openSse(take: (data: string, event: string) => void): SseReader {
  let parts: string[] = []
  let length = 0
  let data: string | null = null
  let event = ''
  let first = true

  function line(text: string): void {
    if (text === '') {
      if (data !== null) take(data, event)
      data = null
      event = ''
      return
    }
    if (text.startsWith('data:')) {
      const value = text.slice(text.charCodeAt(5) === 0x20 ? 6 : 5)
      data = data === null ? value : `${data}\n${value}`
      if (data.length > LONGEST_EVENT) throw new RangeError('an event is too large')
    } else if (text.startsWith('event:')) {
      event = text.slice(text.charCodeAt(6) === 0x20 ? 7 : 6)
    }
  }

  function absorb(text: string): void {
    parts.push(text)
    length += text.length
    if (length > LONGEST_EVENT) throw new RangeError('an event is too large')
    // Joined only when a line may end: an event of many chunks is copied once, not once per chunk.
    if (!/[\r\n]/.test(text) && !endsWithCr(parts.at(-2))) return
    let whole = parts.length === 1 ? text : parts.join('')
    if (first && whole.length < 3) return
    if (first && whole.startsWith('\xEF\xBB\xBF')) whole = whole.slice(3)
    first = false
    const rest = eachLine(whole, line)
    // Copied: a slice would keep the whole chunk that it was cut from.
    parts = rest === '' ? [] : [Buffer.from(rest, 'latin1').toString('latin1')]
    length = rest.length
  }

  return {
    push: (chunk) => absorb(chunk.toString('latin1')),
    end() {
      for (const text of `${parts.join('')}\n`.split(/\r\n|\r|\n/)) line(text)
      parts = []
    },
  }
}

/**
 * Gives the whole lines of `text`, which end with LF, CR LF or CR, and returns what is left. A CR at the very end may be half of a CR LF:
 * it is left.
 */
function eachLine(text: string, take: (line: string) => void): string {
  let start = 0
  let cr = text.indexOf('\r')
  for (;;) {
    const lf = text.indexOf('\n', start)
    if (cr >= 0 && cr < start) cr = text.indexOf('\r', start)
    if (cr >= 0 && (lf < 0 || cr < lf)) {
      if (cr === text.length - 1) return text.slice(start)
      take(text.slice(start, cr))
      start = cr + (text.charCodeAt(cr + 1) === 0x0a ? 2 : 1)
    } else if (lf >= 0) {
      take(text.slice(start, lf))
      start = lf + 1
    } else {
      return text.slice(start)
    }
  }
}

/** Text as the string of its UTF-8 bytes, as everything in a stream is. */
export function bytesOf(text: string): string {
  return Buffer.from(text).toString('latin1')
}

/** The text whose UTF-8 bytes a string stands for. */
export function textOf(bytes: string): string {
  return Buffer.from(bytes, 'latin1').toString('utf8')
}

function endsWithCr(text: string | undefined): boolean {
  return text !== undefined && text.endsWith('\r')
}
