/** Warnings of Node and of libraries, as log lines instead of text on standard error. */
import type { Logger } from 'pino'

/** Logs every warning of this process from now on. */
export function logProcessWarnings(log: Pick<Logger, 'warn'>): void {
  // Node's own listener prints them.
  process.removeAllListeners('warning')
  process.on('warning', (warning) => log.warn({ event: 'process_warning', err: warning }, 'warning of Node or a library'))
}
