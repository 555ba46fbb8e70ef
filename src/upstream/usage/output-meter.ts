/**
 * Measures the output of one answer as it passes: its size always, its beginning as text, so that tokens can be counted if the upstream
 * reports none.
 */
import { bytesOf } from '../sse/sse-parser.ts'
import { countTokens } from './token-count.ts'

export type Meter = {
  /** Takes text as it stands between the quotes of a JSON string, UTF-8 bytes read as latin1. */
  escaped(slice: string): void
  plain(text: string): void
  /** Tokens, roughly and at once: a quarter of the bytes. */
  rough(): number
  /** Tokens, counted. */
  count(): Promise<number>
}

/** Enough to know how many bytes a token of this answer has. */
const KEPT_BYTES = 32 * 1024
const CHUNK_BYTES = 4096

export function openMeter(): Meter {
  let bytes = 0
  let kept = 0
  let chunks: Buffer[] = []
  let pending = ''

  /** Slices keep the whole event alive that they were cut from; copied out in chunks they cost what they hold. */
  function compact(): void {
    if (pending === '') return
    chunks.push(Buffer.from(pending, 'latin1'))
    kept += pending.length
    pending = ''
  }

  function escaped(slice: string): void {
    bytes += slice.length
    if (kept >= KEPT_BYTES) return
    pending += slice
    if (pending.length >= CHUNK_BYTES) compact()
  }

  return {
    escaped,
    plain: (text) => escaped(bytesOf(JSON.stringify(text)).slice(1, -1)),
    rough: () => Math.ceil(bytes / 4),
    async count() {
      compact()
      if (kept === 0) return 0
      const tokens = await countTokens(unescape(Buffer.concat(chunks).toString('utf8')))
      chunks = []
      return Math.ceil((tokens * bytes) / kept)
    },
  }
}

function unescape(text: string): string {
  try {
    return JSON.parse(`"${text}"`) as string
  } catch {
    return text
  }
}
