/** Downloads in progress: how many of a file and for an address, and an end for clients that stop reading. */
import type { ServerResponse } from 'node:http'
import { hasClosed } from '../../src/http/disconnect.ts'
import { openCounts } from '../../src/domain/counts-by-name.ts'
import { overLimit } from '../../src/domain/errors.ts'

export type DownloadLimits = {
  /** How long a client may read nothing. */
  stalledMs: number
  /** Of one file. */
  perFile: number
  /** For one address: that of the client, or of a proxy that is not trusted (`TRUST_PROXY`). */
  perAddress: number
}

/** Returns a function that counts a download until its response closes, and destroys it when the client stalls. It throws `concurrency_limit` above a limit. */
export function openDownloads({
  stalledMs,
  perFile,
  perAddress,
}: DownloadLimits): (file: string, address: string, response: ServerResponse) => void {
  const open = openCounts()

  return (file, address, response) => {
    const keys = [`file ${file}`, `address ${address}`]
    const [ofFile = 0, ofAddress = 0] = keys.map(open.of)
    if (ofFile >= perFile || ofAddress >= perAddress)
      throw overLimit('downloads', {
        message: 'Too many downloads of this file, or from this address, are open. Try again in a moment.',
        retryAfterSeconds: 5,
      })
    if (hasClosed(response)) return
    for (const key of keys) open.add(key, 1)
    let before = -1
    const timer = setInterval(() => {
      // The bytes of the connection that the system has taken for the client.
      const read = response.socket ? response.socket.bytesWritten - response.socket.writableLength : 0
      if (read === before && (response.writableNeedDrain || response.writableEnded)) response.destroy()
      before = read
    }, stalledMs)
    response.once('close', () => {
      clearInterval(timer)
      for (const key of keys) open.add(key, -1)
    })
  }
}
