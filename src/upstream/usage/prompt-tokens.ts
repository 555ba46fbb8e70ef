/** Tokens of a prompt, counted without an upstream: for `count_tokens` of the Messages wire and `input_tokens` of the Responses wire. */
import { isMembers, own, type Members } from '../wires/allowlist.ts'
import { openCounts } from '../../domain/counts-by-name.ts'
import { countTokens } from './tokenizer.ts'

/** The members of a request that a model reads. */
const PROMPT = ['system', 'instructions', 'messages', 'input', 'tools', 'text', 'output_config', 'output_format']
/** Of one plan at once. */
const MAX_COUNTS = 16
/** Of the text of a prompt that is not counted. */
const CHARACTERS_PER_TOKEN = 4
/** Of an inline image or document, and of the frame of each object. */
const INLINE_TOKENS = 1024
/** Data is no text: longer values without white space that look like base64 count as inline data. */
const DATA_LENGTH = 2048
const DATA_URL = /^data:[^,]{0,200},/
/** Searched for, because a pattern that matches megabytes of a class of characters overflows the stack of the regular expression. */
const NOT_BASE64 = /[^A-Za-z0-9+/=_-]/

/**
 * Counts the tokens of the prompt of a body for a plan, under o200k_base: an estimate, because the tokenizer of the model is not known. At least 1. Above
 * `MAX_COUNTS` at once they are estimated by the length of the text.
 */
export function openPromptCounts(): (subscription: string, body: Members) => Promise<number> {
  const counting = openCounts()
  return (subscription, body) => {
    const { text, inline } = promptOf(body)
    if (counting.of(subscription) >= MAX_COUNTS) return Promise.resolve(Math.max(1, inline + Math.ceil(text.length / CHARACTERS_PER_TOKEN)))
    counting.add(subscription, 1)
    // Not awaited here, where the body would be kept meanwhile.
    return countTokens(text)
      .then((tokens) => Math.max(1, inline + tokens))
      .finally(() => counting.add(subscription, -1))
  }
}

/** The text that the model reads, and the tokens of inline data. */
function promptOf(body: Members): { text: string; inline: number } {
  const texts: string[] = []
  let inline = 0
  const add = (value: unknown): void => {
    if (typeof value === 'string') {
      if (value.length >= DATA_LENGTH && !NOT_BASE64.test(value.replace(DATA_URL, ''))) inline += INLINE_TOKENS
      else texts.push(value)
    } else if (Array.isArray(value)) value.forEach(add)
    else if (isMembers(value)) {
      for (const name of Object.keys(value)) {
        if (name === 'type' || name === 'cache_control' || name === 'signature' || name === 'encrypted_content') continue
        if (name !== 'content' && name !== 'role' && name !== 'text') texts.push(name)
        add(value[name])
      }
    }
  }
  for (const name of PROMPT) add(own(body, name))
  return { text: texts.join('\n'), inline }
}
