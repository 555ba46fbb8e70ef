/** Preloaded into the program of a soak (`--import`, `--expose-gc`): each connection to the socket SOAK_PROBE gets one reading of this process as JSON, after a forced collection. */
import { readdirSync } from 'node:fs'
import { createServer } from 'node:net'
import { isMainThread } from 'node:worker_threads'

export type Reading = {
  heapBytes: number
  /** Buffers and other memory of objects that lies outside of the heap. */
  externalBytes: number
  /** Resources that keep the event loop alive, by type, as `process.getActiveResourcesInfo` counts them. */
  handles: Record<string, number>
  fileDescriptors: number
}

/** Threads inherit the preload; only the main thread listens. Neither the server nor its connections keep the process alive. */
const address = process.env['SOAK_PROBE']
if (isMainThread && address !== undefined) {
  const server = createServer((socket) => {
    socket.unref()
    socket.end(JSON.stringify(reading()))
  })
  server.listen(address).unref()
}

function reading(): Reading {
  globalThis.gc?.()
  globalThis.gc?.()
  const { heapUsed, external } = process.memoryUsage()
  const handles: Record<string, number> = {}
  for (const type of process.getActiveResourcesInfo()) handles[type] = (handles[type] ?? 0) + 1
  return { heapBytes: heapUsed, externalBytes: external, handles, fileDescriptors: readdirSync('/proc/self/fd').length }
}
