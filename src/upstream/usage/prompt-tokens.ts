/** Tokens of a prompt, counted without an upstream: for `count_tokens` of the Messages wire and `input_tokens` of the Responses wire. */
import { isMembers, own, type Members } from '../wires/allowlist.ts'
import { openCounts } from '../../domain/counts-by-name.ts'
import { mediaBytes, placeOf, type Place } from './prompt-size.ts'
import { countTokens } from './tokenizer.ts'

/** The members of a request that a model reads. */
const PROMPT = ['system', 'instructions', 'messages', 'input', 'tools', 'text', 'output_config', 'output_format']
/** Of one plan at once. */
const MAX_COUNTS = 16
/** Of what is not counted as text: images, files, and prompts beside those that are being counted. */
const CHARACTERS_PER_TOKEN = 4
/** No model reads them, and what is sealed in them may be long. */
const UNREAD = ['type', 'cache_control', 'signature', 'encrypted_content']
/** Likewise in items and content parts; elsewhere, such as in the input of a tool, these names are the client's. */
const UNREAD_IN_PARTS = ['id', 'call_id', 'tool_use_id', 'data']

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

/** The text that the model reads, and the tokens of images and files. */
function promptOf(body: Members): { text: string; inline: number } {
  const texts: string[] = []
  let inline = 0
  const add = (value: unknown, place: Place): void => {
    if (typeof value === 'string') texts.push(value)
    else if (Array.isArray(value)) for (const entry of value) add(entry, place)
    else if (isMembers(value)) {
      const media = place === 'parts' ? mediaBytes(value) : null
      if (media !== null) return void (inline += Math.ceil(media / CHARACTERS_PER_TOKEN))
      for (const name of Object.keys(value)) {
        if (UNREAD.includes(name) || (place !== 'plain' && UNREAD_IN_PARTS.includes(name))) continue
        if (name !== 'content' && name !== 'role' && name !== 'text') texts.push(name)
        add(value[name], placeOf(name, place))
      }
    }
  }
  for (const name of PROMPT) add(own(body, name), name === 'messages' || name === 'input' ? 'messages' : 'plain')
  return { text: texts.join('\n'), inline }
}
