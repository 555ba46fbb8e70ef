/** Extends the reservation of a request while its stream outgrows it, and estimates the usage when the upstream reports none. */
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import { chargeOf, type Usage } from '../../src/domain/token-windows.ts'

export type Budget = {
  /** Takes the output so far, in tokens. Extends the reservation when it is outgrown; calls `onGone` if that was settled meanwhile. */
  spend(outputTokens: number, onGone: () => void): void
  /** The settlement when the upstream reported no usage. */
  estimate(outputTokens: number): Settlement
}

/** After a failed extension the next one is tried after this many further tokens. */
const RETRY_TOKENS = 1000

export function openBudget(reservation: OpenReservation, promptBytes: number, log: { warn(facts: object, message: string): void }): Budget {
  const { ratio, weights } = reservation.admitted
  const input = Math.ceil((promptBytes * ratio) / 1000)
  const usage = (output: number): Usage => ({ input, cachedInput: 0, output })
  let reserved = reservation.admitted.reserved
  let extending = false

  async function extend(needed: number, onGone: () => void): Promise<void> {
    extending = true
    try {
      if ((await reservation.ensure(needed)) === 'gone') return onGone()
      reserved = Math.max(needed, reserved * 2)
    } catch (err) {
      // The stream continues, and the extension is tried again with further output.
      log.warn({ event: 'reservation_extension_failed', err, reservation: reservation.id }, 'reservation extension failed')
      reserved = needed + RETRY_TOKENS
    }
    extending = false
  }

  return {
    spend(output, onGone) {
      if (extending) return
      const needed = chargeOf(usage(output), weights)
      if (needed > reserved) void extend(needed, onGone)
    },
    estimate: (output) => ({ usage: usage(output), estimated: true }),
  }
}
