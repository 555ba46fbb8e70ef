/**
 * The flat charge of a pass-through request: tokens by the reservation of `plugins/metering`, money by a hold. Charged once the service has
 * answered, else returned.
 */
import { randomUUIDv7 } from 'node:crypto'
import { setTimeout as pause } from 'node:timers/promises'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { onceClosed } from '../../src/http/disconnect.ts'
import { Failure } from '../../src/domain/errors.ts'
import { closeFlatCharge, holdFlatCharge } from '../../src/tasks/flat-charge.ts'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import type { Price } from './routes-file.ts'

/** Charges the request or not; only the first call counts. A response that closes without one charges nothing. */
export type Charge = (outcome: 'capture' | 'void') => void

/** After these the hold is left to the recovery sweep, which returns it. */
const ATTEMPTS = 5
const RETRY_MS = 1_000

/** Admits the request at its price. Throws the failures of the access table. */
export async function admit(app: FastifyInstance, request: FastifyRequest, reply: FastifyReply, price: Price): Promise<Charge> {
  const close = price.api === 'coding' ? await tokenCharge(request, price.tokens) : await moneyCharge(app, request, price.micro)
  let isDecided = false
  const charge: Charge = (outcome) => {
    if (isDecided) return
    isDecided = true
    close(outcome)
  }
  onceClosed(reply.raw, () => charge('void'))
  return charge
}

/**
 * Flat tokens are charged as output, and nothing is learned from them: they say nothing of prompts. The admission is stored before the
 * service gets the request, because handshakes and answers of any status pass through and are charged.
 */
async function tokenCharge({ reservation }: FastifyRequest, tokens: number): Promise<Charge> {
  if (!reservation) throw new Error('the route was reached without admission')
  await reservation.durable
  const settlement = Promise.withResolvers<Settlement | null>()
  reservation.settleWith(settlement.promise)
  return (outcome) =>
    settlement.resolve(outcome === 'capture' ? { usage: { input: 0, cachedInput: 0, output: tokens }, estimated: true } : null)
}

async function moneyCharge({ tasks }: FastifyInstance, { caller, log }: FastifyRequest, micro: number): Promise<Charge> {
  if (!caller) throw new Failure('invalid_api_key')
  const id = randomUUIDv7()
  const payer = await holdFlatCharge(tasks, caller.creating, id, micro)
  const close = async (outcome: 'capture' | 'void'): Promise<void> => {
    for (let attempt = 1; ; attempt++) {
      try {
        const wasHeld = await closeFlatCharge(tasks, payer, id, micro, outcome)
        // A repeated attempt may find that an earlier one has closed it.
        if (!wasHeld && outcome === 'capture' && attempt === 1)
          log.error({ event: 'hold_lost', hold: id }, 'a pass-through request was not charged: its hold was gone')
        return
      } catch (err) {
        log.warn({ event: 'settlement_failed', err, hold: id, attempt }, 'settlement of a pass-through request failed')
        if (attempt === ATTEMPTS) return
        await pause(RETRY_MS)
      }
    }
  }
  return (outcome) => void close(outcome)
}
