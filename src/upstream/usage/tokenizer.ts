/** Tokenizer for answers without reported usage: exact for short texts, an estimate for long ones. Loaded at its first use. */
import { estimateTokenCount } from 'tokenx'

const MAX_EXACT_LENGTH = 100_000
/** The tokenizer takes quadratic time on text without white space. */
const LONG_WORD = /[^\s]{2000}/

type Tokenizer = { countTokens(text: string, options?: object): number }
let tokenizer: Promise<Tokenizer> | null = null

/** Tokens of a text under o200k_base, the encoding of current OpenAI models; an estimate where counting would block the process. */
export async function countTokens(text: string): Promise<number> {
  if (text === '') return 0
  if (text.length > MAX_EXACT_LENGTH || LONG_WORD.test(text)) return estimateTokenCount(text)
  tokenizer ??= import('gpt-tokenizer/encoding/o200k_base')
  const { countTokens: count } = await tokenizer
  return count(text, { disallowedSpecial: new Set() })
}
