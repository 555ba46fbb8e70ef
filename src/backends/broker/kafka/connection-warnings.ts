/** Connection state of one Kafka client (admin, producer or consumer), and the log line of each change. */
import type { BrokerContext } from '../broker.ts'
import { isTransient } from './kafka-errors.ts'

export type ConnectionState = {
  /** The current problem as a sentence; null when connected. */
  problem(): string | null
  failed(problem: string, error?: unknown): void
  recovered(): void
}

/** A transient error is logged after this many in a row, which is after two seconds or more. */
const TRANSIENT_LIMIT = 4

/** `facts` name the client in each log line. `pending` is the state until the first connection; it is not logged. */
export function openConnectionState(log: BrokerContext['log'], facts: object, pending: string | null = null): ConnectionState {
  let current = pending
  let logged: string | null = null
  let failures = 0
  return {
    problem: () => current,
    failed(problem, error) {
      current = problem
      failures++
      if (problem === logged || (failures < TRANSIENT_LIMIT && isTransient(error))) return
      logged = problem
      log.warn({ event: 'kafka_failed', ...facts, problem, err: error }, 'kafka client failed, retrying')
    },
    recovered() {
      if (logged !== null) log.info({ event: 'kafka_recovered', ...facts }, 'kafka client recovered')
      current = logged = null
      failures = 0
    },
  }
}
