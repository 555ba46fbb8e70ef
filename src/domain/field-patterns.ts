/** Patterns of text fields in requests and settings files: a regular expression for the schema and a sentence for the error. */
export const FIELD_PATTERNS = {
  size: { pattern: '^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$', must: 'must be a width and a height in pixels, such as 1024x1024' },
  aspectRatio: { pattern: '^[1-9][0-9]?:[1-9][0-9]?$', must: 'must be two numbers from 1 to 99 with a colon between, such as 16:9' },
  outputFormat: { pattern: '^[a-z0-9]{1,10}$', must: 'must be the short name of a format, such as png' },
  background: { pattern: '^(transparent|#[0-9a-fA-F]{6})$', must: 'must be transparent, or a colour such as #ffffff' },
  amount: { pattern: '^(0|[1-9][0-9]{0,9})(\\.[0-9]{1,6})?$', must: 'must be a decimal string with at most six decimals, such as "0.04"' },
  metadataName: { pattern: '^.{1,64}$', must: 'must have a name of 1 to 64 characters on one line' },
  idempotencyKey: { pattern: '^[\\x21-\\x7e]{1,255}$', must: 'must be 1 to 255 visible ASCII characters' },
} as const

const WORDS = new Map<string, string>(Object.values(FIELD_PATTERNS).map(({ pattern, must }) => [pattern, must]))

/** The error sentence of a pattern; null for an unknown pattern. */
export function inWords(pattern: string): string | null {
  return WORDS.get(pattern) ?? null
}
