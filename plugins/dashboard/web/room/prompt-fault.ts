import { count } from '../format.ts'

/** Characters that the API takes. */
const PROMPT_MAX = 8000

/** Why a prompt cannot be sent; null when it can. */
export function promptFault(text: string): string | null {
  const { length } = text.trim()
  if (length <= PROMPT_MAX) return null
  return `${count(length)} characters: ${count(length - PROMPT_MAX)} more than the ${count(PROMPT_MAX)} that fit. Shorten it.`
}
