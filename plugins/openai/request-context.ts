/** State of one coding request in flight. */
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Settlement } from '../../src/upstream/usage/reservation.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import type { Budget } from './reservation-budget.ts'

export type RequestContext = {
  wire: WireName
  /** Epoch milliseconds. */
  startedAt: number
  /** When the client disconnects: stop the upstream, or read it to its end for the usage. */
  onAbort: 'Cancel' | 'Drain'
  /** As `OpenReservation.durable`. */
  durable: Promise<void>
  reply: FastifyReply
  request: FastifyRequest
  budget: Budget
  /** Sets the usage to charge; only the first call counts. */
  settle(settlement: Settlement | null | Promise<Settlement | null>): void
}
