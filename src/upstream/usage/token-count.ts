/** Counts tokens when an upstream does not: exactly while that is cheap, else by estimate. The tokenizer is loaded at its first use. */
import { estimateTokenCount } from 'tokenx'

const LONGEST_TEXT = 100_000
/** Exact tokenizers go quadratic on text without a break. */
const LONGEST_WORD = /[^\s]{2000}/

type Tokenizer = { countTokens(text: string, options?: object): number }
let tokenizer: Promise<Tokenizer> | null = null

/** Tokens of a text under o200k_base, the encoding of current OpenAI models; an estimate for texts that would keep the process busy. */
export async function countTokens(text: string): Promise<number> {
  if (text === '') return 0
  if (text.length > LONGEST_TEXT || LONGEST_WORD.test(text)) return estimateTokenCount(text)
  tokenizer ??= import('gpt-tokenizer/encoding/o200k_base')
  const { countTokens: count } = await tokenizer
  return count(text, { disallowedSpecial: new Set() })
}
