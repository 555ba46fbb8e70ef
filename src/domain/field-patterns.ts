/** Patterns of text fields in requests, settings files and resources: a regular expression for the schema and a sentence for the error. */
export const FIELD_PATTERNS = {
  size: { pattern: '^[1-9][0-9]{0,4}x[1-9][0-9]{0,4}$', must: 'must be a width and a height in pixels, such as 1024x1024' },
  aspectRatio: { pattern: '^[1-9][0-9]?:[1-9][0-9]?$', must: 'must be two numbers from 1 to 99 with a colon between, such as 16:9' },
  outputFormat: { pattern: '^[a-z0-9]{1,10}$', must: 'must be the short name of a format, such as png' },
  background: { pattern: '^(transparent|#[0-9a-fA-F]{6})$', must: 'must be transparent, or a colour such as #ffffff' },
  amount: { pattern: '^(0|[1-9][0-9]{0,9})(\\.[0-9]{1,6})?$', must: 'must be a decimal string with at most six decimals, such as "0.04"' },
  metadataName: { pattern: '^.{1,64}$', must: 'must have a name of 1 to 64 characters on one line' },
  /** A name of Kubernetes (RFC 1123 label). */
  label: {
    pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$',
    must: 'must be lower-case letters, digits and hyphens, beginning and ending with a letter or digit',
  },
  labelValue: {
    pattern: '^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$',
    must: 'must be empty, or letters, digits, hyphens, underscores and dots, beginning and ending with a letter or digit',
  },
  /** RFC 1123 subdomain. */
  subdomain: {
    pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$',
    must: 'must be names of lower-case letters, digits and hyphens with a dot between, each beginning and ending with a letter or digit',
  },
  /** RFC 3339, with the limits of Kubernetes. */
  resourceTime: {
    pattern: '^[0-9]{4}-[0-9]{2}-[0-9]{2}T([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,9})?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$',
    must: 'must be a date and time with its zone, such as 2027-01-01T00:00:00Z',
  },
  resourceAmount: {
    pattern: '^((0|[1-9][0-9]{0,8})(\\.[0-9]{1,6})?|1000000000(\\.0{1,6})?)$',
    must: 'must be a decimal string from 0 to 1000000000 with at most six decimals, such as "0.04"',
  },
  keyRevision: { pattern: '^[0-9A-Za-z-]{1,64}\\.[0-9]{1,15}$', must: 'must be the revision of the key as it was read' },
  downloadName: {
    pattern: '^[a-z-]{1,40}-[0-9a-f]{8}$',
    must: 'must be lower-case letters and hyphens, then a hyphen and eight hexadecimal digits',
  },
  idempotencyKey: { pattern: '^[\\x21-\\x7e]{1,255}$', must: 'must be 1 to 255 visible ASCII characters' },
} as const

const WORDS = new Map<string, string>(Object.values(FIELD_PATTERNS).map(({ pattern, must }) => [pattern, must]))

/** The error sentence of a pattern; null for an unknown pattern. */
export function inWords(pattern: string): string | null {
  return WORDS.get(pattern) ?? null
}
