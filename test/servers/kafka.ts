import { readFile, writeFile } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { Test } from 'tap'
import { installed } from './client.ts'
import { command } from './command.ts'
import { freePort, start } from './process.ts'
import { serve, type Server } from './server.ts'
import { own, shared } from './shared.ts'

export type KafkaOptions = {
  /** Clients give one of `KAFKA_USERS`. */
  sasl?: 'plain' | 'scram-sha-256'
  /** Clients speak TLS to a certificate that `ca` signs. */
  tls?: boolean
  /** Needs `sasl`: `admin` may do everything, `stranger` nothing. */
  acl?: boolean
  /** Whether topics are created on first use. */
  autoCreate?: boolean
  /** The advertised loopback port, where a proxy stands in front. */
  advertised?: number
  /** The listening address, one of the machine's; loopback if absent. */
  address?: string
}

/** `ca` is a certificate in PEM, '' without `tls`. */
export type Kafka = Server & { brokers: string; ca: string }

export const KAFKA_NAMES = ['kafka']

/** User names and passwords. */
export const KAFKA_USERS = { admin: 'admin-secret', stranger: 'stranger-secret' } as const

const LOOPBACK = '127.0.0.1'

type Ports = { client: number; broker: number; controller: number }

function properties(folder: string, ports: Ports, { sasl, tls, acl, autoCreate, advertised, address = LOOPBACK }: KafkaOptions): string {
  const settings: Record<string, string | number> = {
    'process.roles': 'broker,controller',
    'node.id': 1,
    'log.dirs': join(folder, 'data'),
    listeners: Object.entries(ports).map(([name, port]) => `${name.toUpperCase()}://${name === 'client' ? address : LOOPBACK}:${port}`).join(','),
    'listener.security.protocol.map': `CLIENT:${sasl ? 'SASL_' : ''}${tls ? 'SSL' : 'PLAINTEXT'},BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT`,
    'inter.broker.listener.name': 'BROKER',
    'controller.listener.names': 'CONTROLLER',
    'controller.quorum.voters': `1@127.0.0.1:${ports.controller}`,
    'offsets.topic.replication.factor': 1,
    'offsets.topic.num.partitions': 1,
    'transaction.state.log.replication.factor': 1,
    'transaction.state.log.min.isr': 1,
    'transaction.state.log.num.partitions': 1,
    'share.coordinator.state.topic.replication.factor': 1,
    'share.coordinator.state.topic.min.isr': 1,
    'group.initial.rebalance.delay.ms': 0,
    'group.min.session.timeout.ms': 1000,
    // A killed broker rejoins after its old session timed out: 3 to 5 s with these settings, 14 s by default.
    'broker.session.timeout.ms': 1000,
    'broker.heartbeat.interval.ms': 250,
    'auto.create.topics.enable': String(autoCreate ?? false),
    'log.cleaner.dedupe.buffer.size': 2_097_152,
  }
  if (advertised) {
    const known = Object.entries({ ...ports, client: advertised }).filter(([name]) => name !== 'controller')
    settings['advertised.listeners'] = known.map(([name, port]) => `${name.toUpperCase()}://127.0.0.1:${port}`).join(',')
  }
  if (tls) {
    settings['listener.name.client.ssl.keystore.type'] = 'PEM'
    settings['listener.name.client.ssl.keystore.location'] = join(folder, 'server.pem')
  }
  if (sasl) {
    settings['sasl.enabled.mechanisms'] = sasl.toUpperCase()
    settings['listener.name.client.sasl.enabled.mechanisms'] = sasl.toUpperCase()
    const users = Object.entries(KAFKA_USERS).map(([name, password]) => `user_${name}="${password}"`).join(' ')
    const login = sasl === 'plain' ? `plain.PlainLoginModule required ${users}` : 'scram.ScramLoginModule required'
    settings[`listener.name.client.${sasl}.sasl.jaas.config`] = `org.apache.kafka.common.security.${login};`
  }
  if (acl) {
    settings['authorizer.class.name'] = 'org.apache.kafka.metadata.authorizer.StandardAuthorizer'
    // The broker and the controller do not authenticate, on listeners that are not advertised.
    settings['super.users'] = 'User:ANONYMOUS;User:admin'
  }
  return Object.entries(settings).map(([key, value]) => `${key}=${value}\n`).join('')
}

async function certificate(folder: string): Promise<void> {
  const [key, cert] = [join(folder, 'key.pem'), join(folder, 'cert.pem')]
  const names = ['-subj', '/CN=127.0.0.1', '-addext', 'subjectAltName=IP:127.0.0.1,DNS:localhost']
  await command('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', ...names, '-keyout', key, '-out', cert])
  await writeFile(join(folder, 'server.pem'), `${await readFile(key, 'utf8')}${await readFile(cert, 'utf8')}`)
}

/** Starts a single Kafka node. `brokers` and `url` are its `host:port`. */
export async function startKafka(options: KafkaOptions = {}): Promise<Kafka & { url: string; version: string }> {
  const ports: Ports = { client: await freePort(), broker: await freePort(), controller: await freePort() }
  const classpath = ['-cp', join(installed('kafka'), '*')]
  let ca = ''
  const server = await serve(
    async (folder) => {
      const file = join(folder, 'server.properties')
      await writeFile(file, properties(folder, ports, options))
      if (options.tls) await certificate(folder)
      if (options.tls) ca = await readFile(join(folder, 'cert.pem'), 'utf8')
      const users = Object.entries(KAFKA_USERS).flatMap(([name, password]) => ['--add-scram', `SCRAM-SHA-256=[name=${name},password=${password}]`])
      const scram = options.sasl === 'scram-sha-256' ? users : []
      const format = ['format', '-t', 'tollgate-test-cluster0', '-c', file, ...scram]
      await command('java', ['-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', ...classpath, 'kafka.tools.StorageTool', ...format], folder)
    },
    async (folder, running) => {
      const java = ['-Xms256m', '-Xmx512m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', ...classpath]
      const ready = async (printed: string): Promise<boolean> => printed.includes('Kafka Server started')
      running.push(await start({ argv: ['java', ...java, 'kafka.Kafka', join(folder, 'server.properties')], ready }))
    },
  )
  const brokers = `${options.address ?? LOOPBACK}:${ports.client}`
  return { ...server, brokers, url: brokers, ca, version: basename(dirname(installed('kafka'))) }
}

/** The shared broker's `host:port[,…]` (`KAFKA_BROKERS`), where topics have to be created; null if the suite is skipped. */
export function kafka(t: Test): Promise<string | null> {
  return shared(t, 'KAFKA_BROKERS', KAFKA_NAMES, startKafka)
}

/** A private server that the test may kill and freeze. */
export function ownKafka(t: Test, options: KafkaOptions = {}): Promise<Kafka | null> {
  return own(t, KAFKA_NAMES, () => startKafka(options))
}
