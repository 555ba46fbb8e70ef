/** Kafka errors as sentences for the operator, and which of them are transient. */
import type { Address } from './kafka-url.ts'

type LibraryError = Error & { type?: string; code?: string | number; apiName?: string; errors?: unknown[] }

/** The names that a sentence may need. */
export type ErrorContext = { address: Address; topic?: string; group?: string }

const UNTRUSTED = /CERT|SIGNATURE|ISSUER/
const NO_TLS = /^(EPROTO|ERR_SSL_)/
const CLOSED = /^ECONNRESET$|closed/i

/** Errors that Kafka returns while it starts, moves partitions between brokers, or has just created a topic. */
const TRANSIENT = new Set([
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

/** Whether the error resolves itself in normal operation. */
export function isTransient(error: unknown): boolean {
  const { type, name } = rootOf(error)
  return TRANSIENT.has(type ?? '') || name === 'KafkaJSGroupCoordinatorNotFound'
}

/** One sentence, without a full stop: the problem and its remedy. */
export function describeError(error: unknown, context: ErrorContext): string {
  const root = rootOf(error)
  const { brokers, sasl, tls } = context.address
  const servers = brokers.join(', ')
  const code = String(root.code ?? '')
  if (root instanceof DescribedError) return root.message
  if (root.name === 'KafkaJSSASLAuthenticationError' || root.type === 'SASL_AUTHENTICATION_FAILED') {
    return `${servers} refuses the user ${sasl?.username ?? ''} or the password (sasl=${sasl?.mechanism ?? ''})`
  }
  if (root.type === 'UNSUPPORTED_SASL_MECHANISM') return `${servers} does not offer sasl=${sasl?.mechanism ?? ''}`
  if (root.type === 'ILLEGAL_SASL_STATE') return `${servers} requires authentication: the address needs sasl`
  if (root.type === 'TOPIC_AUTHORIZATION_FAILED')
    return `the user may not use the topic ${context.topic}: producers need Describe and Write on it, consumers Describe and Read`
  if (root.type === 'GROUP_AUTHORIZATION_FAILED' || root.name === 'KafkaJSGroupCoordinatorNotFound') {
    return `the user may not join the group ${context.group}: it needs Describe and Read on it, or Kafka is still starting`
  }
  if (root.name === 'KafkaJSNotImplemented') return unreadable(context.topic, `compressed messages (${root.message})`)
  if (root.type === 'UNKNOWN_TOPIC_OR_PARTITION') return `the topic ${context.topic} does not exist any more`
  if (
    root.name === 'KafkaJSServerDoesNotSupportApiKey' ||
    root.type === 'UNSUPPORTED_VERSION' ||
    root.message === 'API Versions not supported'
  ) {
    return `${servers} does not support ${root.apiName ?? 'a version of the requests'} that Tollgate needs: it must be Apache Kafka 2.4 or newer, or speak its protocol`
  }
  if (tls && NO_TLS.test(code)) return `${servers} failed the TLS handshake (${code}): check that this port speaks TLS`
  if (tls && UNTRUSTED.test(code))
    return `the certificate of ${servers} is not trusted (${code}): caFile must name the authority that signed it, and the certificate must name the host`
  if (root.type !== undefined) return `${servers} answers ${root.type}`
  const what = code || root.message
  if (CLOSED.test(what)) return `${servers} closes the connection (${what}): tls and sasl must match this port`
  return `${servers} does not answer (${what})`
}

/** The sentence about a topic with `what` the client library cannot read. */
export function unreadable(topic: string | undefined, what: string): string {
  return `the topic ${topic} has ${what}, which Tollgate cannot read: set compression.type=producer and delete its messages, or delete the topic, and Tollgate creates it again`
}

/** An error whose message is already a sentence for the operator. */
export class DescribedError extends Error {}

/** The original error: the library wraps it in errors about its own retries. */
export function rootOf(error: unknown): LibraryError {
  let root = (error instanceof Error ? error : new Error(String(error))) as LibraryError
  if (root.errors?.[0] instanceof Error) return rootOf(root.errors[0])
  while (root.cause instanceof Error && root.cause !== root) root = root.cause as LibraryError
  return root
}
