/** Tokenizer for prompts, and for answers without reported usage: a bounded amount of work whatever the text. Loaded at its first use. */
import { openTurns } from '../../concurrency/event-loop-turns.ts'

/** Characters that are counted in one turn: the tokenizer takes quadratic time on text without boundaries of words, such as white space or Chinese. */
const STRETCH = 512
/** Of a longer text so many stretches are counted, at equal distances. */
const MAX_STRETCHES = 32

type Tokenizer = { countTokens(text: string, options?: object): number }
let tokenizer: Promise<Tokenizer> | null = null

const nextTurn = openTurns()

/**
 * Tokens of a text under o200k_base, the encoding of current OpenAI models: exact up to 512 characters, and an estimate above. Of a long text a sample is
 * kept meanwhile.
 */
export function countTokens(text: string): Promise<number> {
  if (text === '') return Promise.resolve(0)
  const stretches = Math.min(MAX_STRETCHES, Math.ceil(text.length / STRETCH))
  const distance = Math.max(STRETCH, text.length / stretches)
  const sample = Array.from({ length: stretches }, (_, index) => text.slice(index * distance, index * distance + STRETCH)).join('')
  return countSample(sample, text.length / sample.length)
}

async function countSample(sample: string, scale: number): Promise<number> {
  tokenizer ??= load()
  const { countTokens: count } = await tokenizer
  let tokens = 0
  for (let at = 0; at < sample.length; at += STRETCH) {
    await nextTurn()
    tokens += count(sample.slice(at, at + STRETCH), { disallowedSpecial: new Set() })
  }
  return Math.ceil(tokens * scale)
}

async function load(): Promise<Tokenizer> {
  const loaded = await import('gpt-tokenizer/encoding/o200k_base')
  // By default it keeps 100,000 words of tenants with their tokens: up to a gigabyte.
  loaded.setMergeCacheSize(0)
  return loaded
}
