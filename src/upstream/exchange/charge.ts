/** What an exchange is charged: the larger of what the upstream reported and what was metered, and for an answer that was cut off also what such answers cost the plan beyond what is seen. */
import type { Usage } from '../../domain/token-windows.ts'
import type { OutputMeter } from '../usage/output-meter.ts'
import type { Admitted, Settlement } from '../usage/reservation.ts'

/** The terms of the admission, and the prompt by its size. */
export type Charge = Pick<Admitted, 'hidden' | 'maxOutputTokens'> & { input: number }

/** Tokenizers differ, and the meter's estimate as well: a report counts unless the estimate is above this many times it, and this many tokens more. */
const TOLERANCE = { factor: 2, tokens: 64 }

/** The terms of a request whose prompt has so many bytes. */
export function chargeOfPrompt(
  { ratio, hidden, maxOutputTokens }: Pick<Admitted, 'ratio' | 'hidden' | 'maxOutputTokens'>,
  promptBytes: number,
): Charge {
  return { hidden, maxOutputTokens, input: Math.ceil((promptBytes * ratio) / 1000) }
}

/** The usage of so many tokens of output. */
export function estimateOf({ input }: Charge, output: number): Usage {
  return { input, cachedInput: 0, output }
}

/** The settlement of an answer that has ended: at once, unless a tokenizer must count the output. */
export function settlementOf(charge: Charge, reported: Usage | null, meter: OutputMeter): Settlement | Promise<Settlement> {
  const estimate = meter.estimateTokens()
  const isPlausible = reported !== null && (reported.output > 0 || estimate === 0)
  if (isPlausible && estimate <= reported.output * TOLERANCE.factor + TOLERANCE.tokens)
    return { usage: reported, estimated: false, seen: estimate }
  return metered(charge, reported, meter)
}

/** That of an answer that was cut off here, whose usage never came or came before its end. */
export async function cutOffSettlement(charge: Charge, reported: Usage | null, meter: OutputMeter): Promise<Settlement> {
  const { usage: seen, estimated } = await metered(charge, reported, meter)
  if (seen.output === 0) return { usage: seen, estimated }
  const { outputRatio, hiddenTokens } = charge.hidden
  const billed = Math.max(outputRatio === 1000 ? 0 : Math.ceil((meter.estimateTokens() * outputRatio) / 1000), seen.output + hiddenTokens)
  const output = Math.max(seen.output, Math.min(billed, charge.maxOutputTokens))
  return { usage: { ...seen, output }, estimated: estimated || output > seen.output }
}

async function metered(charge: Charge, reported: Usage | null, meter: OutputMeter): Promise<Settlement> {
  const output = await meter.countTokens()
  if (!reported) return { usage: estimateOf(charge, output), estimated: true }
  return output > reported.output ? { usage: { ...reported, output }, estimated: true } : { usage: reported, estimated: false }
}
