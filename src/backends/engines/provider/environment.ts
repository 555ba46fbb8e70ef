/** What an engine of a provider is handed besides the options of its entry. */
import type { KeySources } from '../../../domain/settings-file.ts'
import type { Egress } from '../../../egress/egress.ts'

export type Outside = {
  keys: KeySources
  /** Opens a guarded fetch that lets the hosts of the provider through besides what is public. */
  openGuard(allow: readonly string[]): Pick<Egress, 'request'>
  /** Epoch milliseconds. */
  clock: () => number
  /** Resolves after so many milliseconds, or soon after the signal is aborted. */
  pause(ms: number, signal: AbortSignal): Promise<unknown>
  /** In [0, 1). */
  random: () => number
  /** Where results lie that are too large for memory, while they are measured and stored. */
  scratchFolder: string
}
