/** What a coding request holds while it is answered: made by `plugins/metering`, used by whoever answers (`docs/coding.md`, "Windows"). */
import type { Answer } from '../../domain/subscription/commands.ts'
import type { Usage } from '../../domain/token-windows.ts'

/** The answer of `admit` for a request that found room. */
export type Admitted = Extract<Answer<'admit'>, { outcome: 'admitted' }>

/** How large a request is: what `admit` reserves by. `maxOutputTokens` is null when the client named none. */
export type Admission = { promptBytes: number; maxOutputTokens: number | null }

/** What is charged. `estimated`: counted by us, because the upstream reported nothing. */
export type Settlement = { usage: Usage; estimated: boolean }

export type OpenReservation = {
  readonly id: string
  readonly admitted: Admitted
  /** The window headers of the answer (`x-ratelimit-*`, `x-codex-*`), by name. */
  readonly headers: Record<string, string>
  /**
   * Says once how the usage will be known; null charges nothing. Settled when the response has closed and this promise is fulfilled.
   * Without a call nothing is charged.
   */
  settleWith(outcome: Promise<Settlement | null>): void
  /**
   * Makes sure that at least `tokens` (charged tokens) are reserved, doubling what was. `gone`: the stream must end with the wire's failure
   * event.
   */
  ensure(tokens: number): Promise<'extended' | 'gone'>
}
