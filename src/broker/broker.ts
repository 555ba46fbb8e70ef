/**
 * DOOR: who should wake up. A doorbell, never the truth: a ring says that there is work of a kind, and the one who hears it asks the store. A ring that is lost,
 * doubled or late costs latency only, so ringing never fails and never waits.
 */
export type Broker = {
  /** Says that there is work of this kind. `id` names the task, for spreading and for the log. */
  ring(kind: string, id: string): void
  /** Calls `heard` for every ring of these kinds, until the returned function is called. */
  listen(kinds: readonly string[], heard: (kind: string) => void): () => void
  /** Whether rings arrive; `detail` is for the operator. */
  health(): { ok: boolean; detail: string }
  close(): Promise<void>
}

/** Opens the broker named by `url`: `memory:`. */
export async function openBroker(url: string): Promise<Broker> {
  if (url !== 'memory:') throw new TypeError(`no broker at ${url}`)
  const { openMemory } = await import('./memory.ts')
  return openMemory()
}
