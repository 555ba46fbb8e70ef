/** What goes into the log: every change of what is wrong, once, and a few of the client library's own lines. */
import type { logCreator } from 'kafkajs'
import type { BrokerSurroundings } from '../broker.ts'
import { isPassing } from './kafka-errors.ts'

export type Log = BrokerSurroundings['log']

/** An outage makes thousands of lines a minute. */
const MOST_PER_MINUTE = 20

/** The library's own lines as `debug`, a few a minute: what matters of them is said by a `Trouble`. */
export function openLibraryLog(log: Log): logCreator {
  let minute = 0
  let said = 0
  let leftOut = 0
  return () => ({ label, namespace, log: { message, error, broker, groupId } }) => {
    const now = Math.floor(Date.now() / 60_000)
    if (now !== minute) [minute, said] = [now, 0]
    if (said++ >= MOST_PER_MINUTE) {
      leftOut++
      return
    }
    log.debug({ library: 'kafkajs', label, namespace, broker, groupId, error: error instanceof Error ? error.message : error, leftOut }, message)
    leftOut = 0
  }
}

/** What is wrong with one part of the broker, as a sentence; null when nothing is. */
export type Trouble = {
  sentence(): string | null
  begins(sentence: string, error?: unknown): void
  ends(): void
}

/** What may pass by itself is logged when it came so often in a row: with the pauses between, after two seconds or more. */
const PATIENCE = 4

/** `facts` say which part. `waitingFor` is not wrong yet, and not logged. */
export function openTrouble(log: Log, facts: object, waitingFor: string | null = null): Trouble {
  let current = waitingFor
  let logged: string | null = null
  let times = 0
  return {
    sentence: () => current,
    begins(sentence, error) {
      current = sentence
      times++
      if (sentence === logged || (times < PATIENCE && isPassing(error))) return
      logged = sentence
      log.warn({ ...facts, err: error }, `Kafka: ${sentence}`)
    },
    ends() {
      if (logged !== null) log.info(facts, 'Kafka: in order again')
      current = logged = null
      times = 0
    },
  }
}
