/**
 * Money is a safe integer of micro-units inside (1 unit = 1,000,000), a decimal string outside; never a float.
 * The largest amount, 1,000,000,000 units, is 10^15 micro-units, well below 2^53.
 */
const MICRO = 1_000_000
export const LARGEST_AMOUNT = 1_000_000_000 * MICRO

const DECIMAL = /^(0|[1-9][0-9]{0,9})(?:\.([0-9]{1,6}))?$/

/**
 * Reads an unsigned decimal string with at most six decimals, such as "0.04".
 * Returns micro-units, or null for anything else: a sign, an exponent, more decimals, more than 1,000,000,000.
 */
export function parseMoney(text: string): number | null {
  const match = DECIMAL.exec(text)
  if (!match) return null
  const micro = Number(match[1]) * MICRO + Number((match[2] ?? '').padEnd(6, '0'))
  return micro <= LARGEST_AMOUNT ? micro : null
}

/** Writes micro-units as a decimal string of four to six decimals: 40,000 is "0.0400", 33 is "0.000033". */
export function formatMoney(micro: number): string {
  const whole = Math.floor(micro / MICRO)
  const decimals = String(micro % MICRO)
    .padStart(6, '0')
    .replace(/0{1,2}$/, '')
  return `${whole}.${decimals}`
}

/** price (micro-units per unit) × amount (in thousandths of a unit), rounded up once to a whole micro-unit. */
export function multiply(priceMicro: number, amountMilli: number): number {
  const product = BigInt(priceMicro) * BigInt(amountMilli)
  return Number((product + 999n) / 1000n)
}
