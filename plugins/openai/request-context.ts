/** One coding request while it is answered. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import type { Budget } from './reservation-budget.ts'

export type RequestContext = {
  wire: WireName
  /** Epoch milliseconds. */
  begunAt: number
  /** What becomes of the upstream when the client leaves. */
  onAbort: 'Cancel' | 'Drain'
  reply: FastifyReply
  request: FastifyRequest
  budget: Budget
  /** Says once what is charged. */
  settle(settlement: Settlement | null | Promise<Settlement | null>): void
}
