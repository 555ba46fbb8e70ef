/** Rate limit for the client library's own log lines. */
import type { logCreator } from 'kafkajs'
import type { BrokerContext } from '../broker.ts'

/** An outage causes thousands of lines a minute. */
const MAX_PER_MINUTE = 20

/** Logs the library's lines at `debug`, a few a minute. Failures that matter are logged by `ConnectionState`. */
export function openLibraryLog(log: BrokerContext['log']): logCreator {
  let minute = 0
  let logged = 0
  let suppressed = 0
  return () =>
    ({ label, namespace, log: { message, error, broker, groupId } }) => {
      const now = Math.floor(Date.now() / 60_000)
      if (now !== minute) [minute, logged] = [now, 0]
      if (logged++ >= MAX_PER_MINUTE) {
        suppressed++
        return
      }
      log.debug(
        { library: 'kafkajs', label, namespace, broker, groupId, error: error instanceof Error ? error.message : error, suppressed },
        message,
      )
      suppressed = 0
    }
}
