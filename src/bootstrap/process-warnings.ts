/** Warnings of Node and of libraries, as log lines instead of text on standard error. */
import type { Logger } from 'pino'

/** Node's, for a timer in the past that it runs at once: kafkajs sets one for each broker that has never throttled it. */
const HARMLESS = 'TimeoutNegativeWarning'

/** Logs every warning of this process from now on, except a harmless one. */
export function logProcessWarnings(log: Pick<Logger, 'warn'>): void {
  // Node's own listener prints them.
  process.removeAllListeners('warning')
  process.on('warning', (warning) => {
    if (warning.name !== HARMLESS) log.warn({ event: 'process_warning', err: warning }, 'warning of Node or a library')
  })
}
