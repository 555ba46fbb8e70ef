/** Keeps the reservation of a request ahead of what it uses while it streams, and tells at the end what is to be charged. */
import type { OpenReservation, Settlement } from '../../src/upstream/usage/reservation.ts'
import { chargeOf, type Usage } from '../../src/domain/token-windows.ts'

export type Budget = {
  /** Output so far, in tokens. Asks for more room when the reservation is outgrown; `gone` is called once if there is none to be had. */
  spend(outputTokens: number, gone: () => void): void
  /** What is charged when the upstream reported nothing. */
  estimate(outputTokens: number): Settlement
}

export function openBudget(reservation: OpenReservation, promptBytes: number, log: { warn(facts: object, message: string): void }): Budget {
  const { ratio, weights } = reservation.admitted
  const input = Math.ceil((promptBytes * ratio) / 1000)
  const usage = (output: number): Usage => ({ input, cachedInput: 0, output })
  let room = reservation.admitted.reserved
  let asking = false

  async function extend(needed: number, gone: () => void): Promise<void> {
    asking = true
    try {
      if ((await reservation.ensure(needed)) === 'gone') return gone()
      room = Math.max(needed, room * 2)
    } catch (err) {
      // The store is away; the stream goes on and asks again when there is more of it.
      log.warn({ err, reservation: reservation.id }, 'a reservation could not be extended')
      room = needed + 1000
    }
    asking = false
  }

  return {
    spend(output, gone) {
      if (asking) return
      const needed = chargeOf(usage(output), weights)
      if (needed > room) void extend(needed, gone)
    },
    estimate: (output) => ({ usage: usage(output), estimated: true }),
  }
}
