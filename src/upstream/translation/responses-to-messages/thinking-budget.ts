/** The effort of reasoning as a budget of thinking tokens. Not every server of the wire knows an effort; every one that thinks knows a budget. */
import { isMembers, ownText, type Members } from '../../wires/allowlist.ts'

/** Tokens. */
const BUDGETS: Record<string, number> = { minimal: 1024, low: 2048, medium: 8192, high: 16_384, xhigh: 32_768, max: 32_768 }
/** The least that the wire takes. */
const MIN_BUDGET = 1024

/**
 * The member `thinking` for the `reasoning` of a request, or null for the upstream's default. At most half of `limit`, the output tokens, is
 * budget: the answer needs the rest.
 */
export function thinkingFor(reasoning: unknown, limit: number): Members | null {
  const effort = isMembers(reasoning) ? ownText(reasoning, 'effort') : ''
  if (effort === 'none') return { type: 'disabled' }
  const budget = Math.min(Object.hasOwn(BUDGETS, effort) ? (BUDGETS[effort] ?? 0) : 0, Math.floor(limit / 2))
  return budget < MIN_BUDGET ? null : { type: 'enabled', budget_tokens: budget }
}
