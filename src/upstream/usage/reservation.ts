/** The token reservation of a coding request: made by `plugins/metering`, settled by the route (`docs/coding.md`, "Windows"). */
import type { Answer } from '../../domain/subscription/commands.ts'
import type { Write } from '../../backends/store/queued-command.ts'
import type { Usage } from '../../domain/token-windows.ts'

/** The result of `admit` for a request that was admitted. */
export type Admitted = Extract<Answer<'admit'>, { outcome: 'admitted' }>

/** The size of a request, from which `admit` computes the reservation. `maxOutputTokens` is null when the client set no limit. */
export type Admission = { promptBytes: number; maxOutputTokens: number | null }

/**
 * The usage to charge. `estimated`: counted by us, because the upstream reported none. `seen`: the output tokens that were metered beside a reported
 * usage, from which the plan learns what an answer costs that is cut off.
 */
export type Settlement = { usage: Usage; estimated: boolean; seen?: number }

export type OpenReservation = {
  readonly id: string
  readonly admitted: Omit<Admitted, 'windows'>
  /** Fulfilled once the admission is stored: nothing is answered before. Rejects with `Unavailable`; then nothing is answered as a success. */
  readonly durable: Promise<void>
  /** The same by a call, which comes at once where it is known. */
  whenStored(told: Write): void
  /**
   * Returns the function to be called with the usage to charge; null charges nothing, as it does not to call this. The settlement is written when that is known and
   * the response has closed.
   */
  openSettlement(): (settlement: Settlement | null) => void
  /** The same with a promise; a rejected one charges nothing. */
  settleWith(outcome: Promise<Settlement | null>): void
  /**
   * Extends the reservation to at least `tokens` (weighted), at least doubling it. `gone`: it was settled meanwhile, and the stream must end
   * with the wire's failure event.
   */
  ensure(tokens: number): Promise<'extended' | 'gone'>
  /** The same for the output of an answer so far: it need not be awaited. Calls `gone` at that outcome; an extension that fails is tried again with further output. */
  cover(tokens: number, gone: () => void): void
}
