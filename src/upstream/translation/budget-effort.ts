/** A budget of thinking tokens as an effort of reasoning. */

/** The highest budget of each effort. */
const BUDGETS: [number, string][] = [
  [4096, 'low'],
  [16_384, 'medium'],
  [Infinity, 'high'],
]

/** Undefined for what is no budget. */
export function effortOfBudget(tokens: unknown): string | undefined {
  return typeof tokens === 'number' ? BUDGETS.find(([most]) => tokens <= most)?.[1] : undefined
}
