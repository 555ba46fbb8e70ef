/** MongoDB and Kafka for the distributed benchmark: from the environment's addresses, or installed by `npm run servers` and started for the run. */
import { client } from '../test/servers/client.ts'
import { KAFKA_NAMES, startKafka } from '../test/servers/kafka.ts'
import { MONGODB_NAMES, startMongodb } from '../test/servers/mongodb.ts'

export type Servers = {
  /** A URL without a database's name. */
  mongodb: string
  /** As host:port[,…]. */
  brokers: string
  /** Names and versions, as far as known. */
  what: string
  stop(): Promise<void>
}

type Server = { url: string; what: string; stop(): Promise<void> }

/** Servers that are not installed and have no address, as arguments of `npm run servers`. */
export function missingServers(): string[] {
  const wanted = [...(process.env['MONGODB_URL'] ? [] : MONGODB_NAMES), ...(process.env['KAFKA_BROKERS'] ? [] : KAFKA_NAMES)]
  return wanted.filter((name) => client(name) === null)
}

/** Starts the servers that have no address. They end with this process, however it ends. */
export async function openServers(): Promise<Servers> {
  const [mongodb, kafka] = await Promise.all([
    open('MONGODB_URL', async () => {
      const { url, version, stop } = await startMongodb()
      return { url, what: version, stop }
    }),
    open('KAFKA_BROKERS', async () => {
      const { brokers, version, stop } = await startKafka()
      return { url: brokers, what: version, stop }
    }),
  ])
  return {
    mongodb: mongodb.url,
    brokers: kafka.url,
    what: `${mongodb.what}; ${kafka.what}`,
    stop: async () => void (await Promise.all([mongodb.stop(), kafka.stop()])),
  }
}

async function open(variable: string, start: () => Promise<Server>): Promise<Server> {
  const url = process.env[variable]
  return url ? { url, what: `the server of ${variable}`, stop: async () => {} } : start()
}
