import { client } from './client.ts'
import { KAFKA_NAMES, startKafka } from './kafka.ts'
import { KUBERNETES_NAMES, startKubernetes } from './kubernetes.ts'
import { MONGODB_NAMES, startMongodb } from './mongodb.ts'
import { S3_NAMES, startS3 } from './s3.ts'

type Shared = { variable: string; names: string[]; start(): Promise<{ url: string; version?: string; stop(): Promise<void> }> }

const SHARED: Shared[] = [
  { variable: 'MONGODB_URL', names: MONGODB_NAMES, start: startMongodb },
  { variable: 'KAFKA_BROKERS', names: KAFKA_NAMES, start: startKafka },
  { variable: 'S3_URL', names: S3_NAMES, start: startS3 },
  { variable: 'TEST_KUBECONFIG', names: KUBERNETES_NAMES, start: startKubernetes },
]

/**
 * Starts the shared servers of a run that are installed and have no address in the environment. `addresses` are
 * variables for the environment of the tests. `say` gets a line for each, also for one that failed to start, which the suites then start themselves.
 */
export async function startOnce(say: (line: string) => void): Promise<{ addresses: Record<string, string>; stop(): Promise<void> }> {
  const addresses: Record<string, string> = {}
  const stops: Array<() => Promise<void>> = []
  const wanted = SHARED.filter(({ variable, names }) => !process.env[variable] && names.every((name) => client(name) !== null))
  await Promise.all(
    wanted.map(async ({ variable, names, start }) => {
      const since = performance.now()
      try {
        const { url, version = names.join(' and '), stop } = await start()
        stops.push(stop)
        addresses[variable] = url
        say(`${variable}=${url} (${version}) started in ${((performance.now() - since) / 1000).toFixed(1)} s`)
      } catch (error) {
        say(`${names.join(' and ')} did not start: ${error instanceof Error ? error.message : error}`)
      }
    }),
  )
  return { addresses, stop: async () => void (await Promise.all(stops.map((stop) => stop()))) }
}
