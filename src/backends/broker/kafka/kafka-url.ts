/** Parser of `kafka://` addresses (docs/kafka.md). */
import { createSecureContext } from 'node:tls'

const MECHANISMS = ['plain', 'scram-sha-256', 'scram-sha-512'] as const

export type Address = {
  /** As host:port. */
  brokers: string[]
  /** PEM texts. */
  tls: { ca?: string; cert?: string; key?: string } | null
  sasl: { mechanism: (typeof MECHANISMS)[number]; username: string; password: string } | null
  topicPrefix: string
  group: string
  /** Of a topic that Tollgate creates. */
  partitions: number
  /** Of a topic that Tollgate creates; null leaves it to the broker's `default.replication.factor`. */
  replication: number | null
}

const PARAMETERS = [
  'tls',
  'caFile',
  'certFile',
  'keyFile',
  'sasl',
  'username',
  'passwordFile',
  'topicPrefix',
  'group',
  'partitions',
  'replication',
] as const
type Parameter = (typeof PARAMETERS)[number]
type Query = Partial<Record<Parameter, string>>

const DEFAULT_PORT = 9092
const DEFAULT_PREFIX = 'tollgate.'
const DEFAULT_PARTITIONS = 12
const HOST = /^[A-Za-z0-9._-]+$/
/** Kafka limits a topic name to 249 characters; the kind is appended. */
const NAME = /^[A-Za-z0-9._-]{1,200}$/

/**
 * Reads `kafka://[user:password@]host[:port],…[?parameters]`. `read` returns the text of a file. Throws an Error of one sentence, which never
 * includes a part of the address that could hold a password.
 */
export function readAddress(url: string, read: (file: string) => string): Address {
  const [, user, hosts = '', query = ''] = /^kafka:\/\/(?:([^@/?#]*)@)?([^@/?#]+)\/?(?:\?([^#]*))?$/.exec(url) ?? []
  if (hosts === '')
    throw new Error(
      'The Kafka address is not of the form kafka://host:9092,host:9092?name=value, with user:password@ before the hosts where needed (percent-encoded).',
    )
  const given = readParameters(query)
  const topicPrefix = named(given, 'topicPrefix', DEFAULT_PREFIX)
  return {
    brokers: hosts.split(',').map(readBroker),
    tls: readTls(given, read),
    sasl: readSasl(given, user, read),
    topicPrefix,
    group: named(given, 'group', `${topicPrefix}workers`),
    partitions: whole(given, 'partitions', 1000) ?? DEFAULT_PARTITIONS,
    replication: whole(given, 'replication', 10),
  }
}

function readParameters(query: string): Query {
  const given: Query = {}
  for (const [name, value] of new URLSearchParams(query)) {
    const parameter = PARAMETERS.find((known) => known === name)
    if (!parameter)
      throw new Error(`The Kafka address has no parameter ${JSON.stringify(name.slice(0, 40))}; it may have ${PARAMETERS.join(', ')}.`)
    if (given[parameter] !== undefined) throw new Error(`The Kafka address gives ${parameter} twice.`)
    given[parameter] = value
  }
  return given
}

/** The client library splits at the first colon, so an IPv6 host can only be given by name. */
function readBroker(text: string): string {
  const [host = '', port = String(DEFAULT_PORT), ...rest] = text.split(':')
  const isPort = /^\d{1,5}$/.test(port) && Number(port) >= 1 && Number(port) <= 65_535
  if (!HOST.test(host) || !isPort || rest.length > 0) {
    throw new Error('The Kafka address contains a broker that is not host or host:port, where host is a name or an IPv4 address.')
  }
  return `${host}:${port}`
}

function readTls(given: Query, read: (file: string) => string): Address['tls'] {
  const { tls = 'false' } = given
  if (tls !== 'true' && tls !== 'false') throw new Error('tls in the Kafka address may be true or false.')
  const files = { ca: given.caFile, cert: given.certFile, key: given.keyFile }
  if (tls === 'false') {
    if (Object.values(files).some((file) => file !== undefined))
      throw new Error('caFile, certFile and keyFile in the Kafka address need tls=true.')
    return null
  }
  if ((files.cert === undefined) !== (files.key === undefined))
    throw new Error('certFile and keyFile in the Kafka address need each other.')
  const texts: NonNullable<Address['tls']> = {}
  if (files.ca !== undefined) texts.ca = readText('caFile', files.ca, read)
  if (files.cert !== undefined) texts.cert = readText('certFile', files.cert, read)
  if (files.key !== undefined) texts.key = readText('keyFile', files.key, read)
  try {
    createSecureContext(texts)
  } catch (error) {
    throw new Error(
      `caFile, certFile and keyFile in the Kafka address are not certificates and a key in PEM that fit together (${(error as NodeJS.ErrnoException).code ?? 'unreadable'}).`,
      { cause: error },
    )
  }
  if (texts.ca !== undefined && !texts.ca.includes('-----BEGIN CERTIFICATE-----'))
    throw new Error('caFile in the Kafka address contains no certificate in PEM.')
  return texts
}

function readSasl(given: Query, user: string | undefined, read: (file: string) => string): Address['sasl'] {
  const [first, ...rest] = user?.split(':') ?? []
  const username = given.username ?? decoded(first)
  const hasPassword = rest.length > 0
  if (given.sasl === undefined) {
    if (username !== undefined || given.passwordFile !== undefined)
      throw new Error(`A user in the Kafka address needs sasl: ${MECHANISMS.join(', ')}.`)
    return null
  }
  const mechanism = MECHANISMS.find((known) => known === given.sasl)
  if (!mechanism) throw new Error(`sasl in the Kafka address may be ${MECHANISMS.join(', ')}.`)
  if (given.username !== undefined && first !== undefined)
    throw new Error('The Kafka address gives the user twice, before the hosts and as username: one of them is enough.')
  if (hasPassword === (given.passwordFile !== undefined))
    throw new Error('sasl in the Kafka address needs one password: passwordFile, or user:password@ before the hosts.')
  const password = given.passwordFile === undefined ? decoded(rest.join(':')) : readText('passwordFile', given.passwordFile, read).trim()
  if (!username || !password) throw new Error('sasl in the Kafka address needs a user and a password that are not empty.')
  return { mechanism, username, password }
}

function decoded(text: string | undefined): string | undefined {
  try {
    return text === undefined ? undefined : decodeURIComponent(text)
  } catch {
    throw new Error('The user or password in the Kafka address is not percent-encoded.')
  }
}

function readText(parameter: Parameter, file: string, read: (file: string) => string): string {
  try {
    return read(file)
  } catch (error) {
    throw new Error(
      `${parameter} in the Kafka address is ${JSON.stringify(file)}, which cannot be read (${(error as NodeJS.ErrnoException).code}).`,
      { cause: error },
    )
  }
}

function named(given: Query, parameter: 'topicPrefix' | 'group', fallback: string): string {
  const name = given[parameter] ?? fallback
  if (!NAME.test(name))
    throw new Error(`${parameter} in the Kafka address may be up to 200 letters, digits, dots, hyphens and underscores.`)
  return name
}

function whole(given: Query, parameter: 'partitions' | 'replication', max: number): number | null {
  const text = given[parameter]
  if (text === undefined) return null
  if (!/^\d{1,4}$/.test(text) || Number(text) < 1 || Number(text) > max)
    throw new Error(`${parameter} in the Kafka address may be a whole number from 1 to ${max}.`)
  return Number(text)
}
