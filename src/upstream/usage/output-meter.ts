/**
 * Meters the output of one answer for upstreams that report no usage: keeps its size and the beginning of its text, from which tokens are
 * counted.
 */
import { bytesOf } from '../sse/sse-parser.ts'
import { countTokens } from './tokenizer.ts'

export type OutputMeter = {
  /** Adds text as it stands between the quotes of a JSON string, UTF-8 bytes read as latin1. */
  addEscaped(slice: string): void
  addText(text: string): void
  /** Output tokens, estimated without a tokenizer: a quarter of the bytes. */
  estimateTokens(): number
  /** Output tokens, counted by a tokenizer on the text that was kept and scaled to the whole size. */
  countTokens(): Promise<number>
}

/** Enough to know the bytes per token of this answer. */
const MAX_SAMPLE_BYTES = 32 * 1024
const CHUNK_BYTES = 4096

export function openMeter(): OutputMeter {
  let bytes = 0
  let sampleBytes = 0
  let chunks: Buffer[] = []
  let pending = ''

  /** Copies pending slices, because a slice retains the whole event that it was cut from. */
  function compact(): void {
    if (pending === '') return
    chunks.push(Buffer.from(pending, 'latin1'))
    sampleBytes += pending.length
    pending = ''
  }

  function addEscaped(slice: string): void {
    bytes += slice.length
    if (sampleBytes >= MAX_SAMPLE_BYTES) return
    pending += slice
    if (pending.length >= CHUNK_BYTES) compact()
  }

  return {
    addEscaped,
    addText: (text) => addEscaped(bytesOf(JSON.stringify(text)).slice(1, -1)),
    estimateTokens: () => Math.ceil(bytes / 4),
    async countTokens() {
      compact()
      if (sampleBytes === 0) return 0
      const tokens = await countTokens(unescape(Buffer.concat(chunks).toString('utf8')))
      chunks = []
      return Math.ceil((tokens * bytes) / sampleBytes)
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
