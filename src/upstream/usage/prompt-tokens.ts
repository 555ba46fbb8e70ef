/** Tokens of a prompt, counted without an upstream: for `count_tokens` of the Messages wire and `input_tokens` of the Responses wire. */
import { isMembers, own, type Members } from '../wires/allowlist.ts'
import { countTokens } from './tokenizer.ts'

/** The members of a request that a model reads. */
const PROMPT = ['system', 'instructions', 'messages', 'input', 'tools', 'text', 'output_config']
/** Longer texts are counted by their beginning: the work of a request is bounded. */
const MAX_SAMPLE = 100_000
/** Of an inline image or document, and of the frame of each object. */
const INLINE_TOKENS = 1024
/** Data is no text: longer values without white space that look like base64 count as inline data. */
const DATA_LENGTH = 2048
const DATA_URL = /^data:[^,]{0,200},/
/** Searched for, because a pattern that matches megabytes of a class of characters overflows the stack of the regular expression. */
const NOT_BASE64 = /[^A-Za-z0-9+/=_-]/

/** Tokens of the prompt of a body, under o200k_base: an estimate, because the tokenizer of the model is not known. At least 1. */
export async function countPromptTokens(body: Members): Promise<number> {
  const texts: string[] = []
  let inline = 0
  const add = (value: unknown): void => {
    if (typeof value === 'string') {
      if (isData(value)) inline += INLINE_TOKENS
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
  const text = texts.join('\n')
  const sample = text.slice(0, MAX_SAMPLE)
  const tokens = sample === '' ? 0 : Math.ceil(((await countTokens(sample)) * text.length) / sample.length)
  return Math.max(1, tokens + inline)
}

function isData(value: string): boolean {
  return value.length >= DATA_LENGTH && !NOT_BASE64.test(value.replace(DATA_URL, ''))
}
