/** What a request is charged: has its reservation cover the output so far, and decides between the reported usage and what was metered. */
import type { OutputMeter } from '../../src/upstream/usage/output-meter.ts'
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import { chargeOf, type Usage } from '../../src/domain/token-windows.ts'

export type Budget = {
  /** Takes the output so far, in tokens. Calls `onGone` if the reservation was settled meanwhile. */
  spend(outputTokens: number, onGone: () => void): void
  /** The usage of so many tokens of output, the prompt by its size. */
  estimate(outputTokens: number): Usage
  /** The settlement of an answer that has ended: the larger of what the upstream reported, if it did, and what was metered. */
  settlement(reported: Usage | null, meter: OutputMeter): Settlement | Promise<Settlement>
  /** That of an answer that was cut off here, whose usage never came: also what such answers cost the plan beyond what is seen of them. */
  cutOff(reported: Usage | null, meter: OutputMeter): Promise<Settlement>
}

/** Tokenizers differ, and the meter's estimate as well: a report counts unless the estimate is above this many times it, and this many tokens more. */
const TOLERANCE = { factor: 2, tokens: 64 }

export function openBudget(reservation: OpenReservation, promptBytes: number): Budget {
  const { ratio, weights, hidden, maxOutputTokens } = reservation.admitted
  const input = Math.ceil((promptBytes * ratio) / 1000)
  const usage = (output: number): Usage => ({ input, cachedInput: 0, output })
  return {
    spend: (output, onGone) => reservation.cover(chargeOf(usage(output), weights), onGone),
    estimate: usage,
    settlement(reported, meter) {
      const estimate = meter.estimateTokens()
      const isPlausible = reported !== null && (reported.output > 0 || estimate === 0)
      if (isPlausible && estimate <= reported.output * TOLERANCE.factor + TOLERANCE.tokens)
        return { usage: reported, estimated: false, seen: estimate }
      return metered(reported, meter)
    },
    async cutOff(reported, meter) {
      const { usage: seen, estimated } = await metered(reported, meter)
      if (seen.output === 0) return { usage: seen, estimated }
      const { outputRatio, hiddenTokens } = hidden
      const billed = Math.max(
        outputRatio === 1000 ? 0 : Math.ceil((meter.estimateTokens() * outputRatio) / 1000),
        seen.output + hiddenTokens,
      )
      const output = Math.max(seen.output, Math.min(billed, maxOutputTokens))
      return { usage: { ...seen, output }, estimated: estimated || output > seen.output }
    },
  }

  async function metered(reported: Usage | null, meter: OutputMeter): Promise<Settlement> {
    const output = await meter.countTokens()
    if (!reported) return { usage: usage(output), estimated: true }
    return output > reported.output ? { usage: { ...reported, output }, estimated: true } : { usage: reported, estimated: false }
  }
}
