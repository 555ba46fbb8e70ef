import type { Test } from 'tap'
import { missing } from './client.ts'

type Started = { url: string; stop(): Promise<void> }

/** By variable: the servers that this process started because the environment had no address. */
const started = new Map<string, Promise<Started>>()

/** The outermost test, which ends when the file does. */
function fileOf(t: Test): Test {
  return t.parent ? fileOf(t.parent as Test) : t
}

/**
 * The address of a shared server: from the variable, set by `npm test` or its caller, else of one that is started for
 * this file and stopped at its end. Null, with the suite skipped, when one of `names` is not installed.
 */
export async function shared(t: Test, variable: string, names: string[], start: () => Promise<Started>): Promise<string | null> {
  const address = process.env[variable]
  if (address) return address
  if (missing(t, names)) return null
  let server = started.get(variable)
  if (!server) {
    const starting = start()
    started.set(variable, (server = starting))
    fileOf(t).teardown(() => starting.then(({ stop }) => stop(), () => {}))
  }
  return (await server).url
}

/** A private server, stopped at the end of the test; null, with the test skipped, when one of `names` is not installed. */
export async function own<T extends { stop(): Promise<void> }>(t: Test, names: string[], start: () => Promise<T>): Promise<T | null> {
  if (missing(t, names)) return null
  const server = await start()
  t.teardown(() => server.stop())
  return server
}
