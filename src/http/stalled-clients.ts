/** Clients that stop reading their answer. While it is written, its writer counts their silence. */
import type { ServerResponse } from 'node:http'

/** How long a client may read nothing of an answer. */
export const STALLED_CLIENT_MS = 300_000

/** For an answer that was ended: destroys its connection when the client reads nothing of it for `stalledMs`, so that its request is settled. */
export function disconnectStalled(raw: ServerResponse, stalledMs: number): void {
  // The operating system has taken all of it, as it does unless a client reads slowly, or nobody reads any more.
  if (raw.destroyed || (raw.writableEnded && raw.writableLength === 0)) return
  // Node restarts this timer while bytes leave its queue, destroys the socket when nobody handles it, and sets the keep-alive timeout after the answer.
  raw.setTimeout(stalledMs)
}
