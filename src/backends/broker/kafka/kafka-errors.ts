/** What an error of the client library means to whoever runs the broker. */
import type { Address } from './kafka-url.ts'

type LibraryError = Error & { type?: string; code?: string | number; apiName?: string; errors?: unknown[] }

/** What was being done: the names that a sentence needs. */
export type About = { address: Address; topic?: string; group?: string }

const UNTRUSTED = /CERT|SIGNATURE|ISSUER/
const NO_TLS = /^(EPROTO|ERR_SSL_)/
const CLOSED = /^ECONNRESET$|closed/i

/** What Kafka answers while it starts, moves things between brokers, or has just made a topic. */
const PASSING = new Set([
  'LEADER_NOT_AVAILABLE',
  'NOT_LEADER_FOR_PARTITION',
  'UNKNOWN_TOPIC_OR_PARTITION',
  'GROUP_LOAD_IN_PROGRESS',
  'GROUP_COORDINATOR_NOT_AVAILABLE',
  'NOT_COORDINATOR_FOR_GROUP',
  'REBALANCE_IN_PROGRESS',
  'UNKNOWN_MEMBER_ID',
  'ILLEGAL_GENERATION',
  'NOT_CONTROLLER',
])

/** Whether it is of no concern unless it lasts. */
export function isPassing(error: unknown): boolean {
  const { type, name } = rootOf(error)
  return PASSING.has(type ?? '') || name === 'KafkaJSGroupCoordinatorNotFound'
}

/** One sentence, without a full stop, that says what is wrong and what helps. */
export function sentenceOf(error: unknown, about: About): string {
  const root = rootOf(error)
  const { brokers, sasl, tls } = about.address
  const servers = brokers.join(', ')
  const code = String(root.code ?? '')
  if (root instanceof SaidError) return root.message
  if (root.name === 'KafkaJSSASLAuthenticationError' || root.type === 'SASL_AUTHENTICATION_FAILED') {
    return `${servers} refuses the user ${sasl?.username ?? ''} or the password (sasl=${sasl?.mechanism ?? ''})`
  }
  if (root.type === 'UNSUPPORTED_SASL_MECHANISM') return `${servers} does not offer sasl=${sasl?.mechanism ?? ''}`
  if (root.type === 'ILLEGAL_SASL_STATE') return `${servers} wants a user: the address needs sasl`
  if (root.type === 'TOPIC_AUTHORIZATION_FAILED') return `the user may not use the topic ${about.topic}: who rings needs Describe and Write on it, who listens Describe and Read`
  if (root.type === 'GROUP_AUTHORIZATION_FAILED' || root.name === 'KafkaJSGroupCoordinatorNotFound') {
    return `no broker lets us into the group ${about.group}: the user needs Describe and Read on it, or Kafka is still starting`
  }
  if (root.type === 'UNKNOWN_TOPIC_OR_PARTITION') return `the topic ${about.topic} is gone`
  if (root.name === 'KafkaJSServerDoesNotSupportApiKey' || root.type === 'UNSUPPORTED_VERSION' || root.message === 'API Versions not supported') {
    return `${servers} does not speak ${root.apiName ?? 'a version of the requests'} that we need: it must be Apache Kafka 2.4 or newer, or speak its protocol`
  }
  if (tls && NO_TLS.test(code)) return `${servers} does not speak TLS as we do (${code}): is tls=true right for this port`
  if (tls && UNTRUSTED.test(code)) return `the certificate of ${servers} is not trusted (${code}): caFile names who signed it, and the host must be in it`
  if (root.type !== undefined) return `${servers} answers ${root.type}`
  const what = code || root.message
  if (CLOSED.test(what)) return `${servers} closes the connection (${what}): tls and sasl must be those of this port`
  return `${servers} does not answer (${what})`
}

/** An error whose message is a sentence for the operator already. */
export class SaidError extends Error {}

/** The library wraps what happened in errors about its own retries. */
export function rootOf(error: unknown): LibraryError {
  let root = (error instanceof Error ? error : new Error(String(error))) as LibraryError
  if (root.errors?.[0] instanceof Error) return rootOf(root.errors[0])
  while (root.cause instanceof Error && root.cause !== root) root = root.cause as LibraryError
  return root
}
