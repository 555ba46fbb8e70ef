/** Thread of `one-process.ts` that sends coding requests: so many over its connections for each message, which it answers when all are answered. */
import { parentPort } from 'node:worker_threads'
import { openConnection, type Connection } from './connection.ts'
import { WORKLOADS } from './coding-workloads.ts'

/** `isCompared`: sends what the pass-through is sent. */
export type Burst = { url: string; key: string; workload: string; isCompared: boolean; connections: number; count: number }

const opened = new Map<string, Promise<Connection[]>>()

parentPort?.on('message', (burst: Burst) => void run(burst).then(() => parentPort?.postMessage('done')))

async function run({ url, key, workload, isCompared, connections: most, count }: Burst): Promise<void> {
  const found = WORKLOADS.find(({ name }) => name === workload)
  if (!found) throw new Error(`there is no workload ${workload}`)
  const { bytes, expected } = (isCompared && found.compared) || found
  const connections = opened.get(url) ?? Promise.all(Array.from({ length: most }, () => openConnection(url)))
  opened.set(url, connections)
  const request = bytes(key)
  let left = count
  const client = async (connection: Connection): Promise<void> => {
    while (left-- > 0) {
      const { status, tail } = await connection.ask(request)
      if (status !== expected.status || !tail.includes(expected.end)) throw new Error(`an answer was ${status}, and ended with ${tail}`)
    }
  }
  await Promise.all((await connections).map(client))
}
