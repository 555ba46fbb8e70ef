/** Load generator on loopback, bounded in time and count: closed loop of a number of clients, or a steady rate. */
import { setTimeout as pause } from 'node:timers/promises'
import { openConnection, type Connection, type Reply } from './connection.ts'

export type Target = { url: string; bytes: Buffer }

/** Status of an expected answer, and a text that its end contains. Any other answer ends the run. */
export type Expected = { status: number; end: string }

const MOST_REQUESTS = 500_000

/** Closed loop for `ms` milliseconds: each connection, assigned to the targets in turn, sends the next request as soon as it has an answer. Returns the number of answers and the milliseconds taken. */
export async function asFastAsPossible(targets: readonly Target[], expected: Expected, { connections, ms }: { connections: number; ms: number }): Promise<{ count: number; ms: number }> {
  const clients = await Promise.all(
    Array.from({ length: connections }, async (_, n) => {
      const target = targets[n % targets.length]
      if (!target) throw new Error('there is no target')
      return { bytes: target.bytes, connection: await openConnection(target.url) }
    }),
  )
  const begunMs = performance.now()
  let count = 0
  const client = async ({ bytes, connection }: (typeof clients)[number]): Promise<void> => {
    while (performance.now() - begunMs < ms && count < MOST_REQUESTS) {
      check(await connection.ask(bytes), expected)
      count++
    }
  }
  await Promise.all(clients.map(client))
  const tookMs = performance.now() - begunMs
  for (const { connection } of clients) connection.close()
  return { count, ms: tookMs }
}

/** Open loop: sends `count` requests, each of `bytes` in turn, at `perSecond`, without waiting for earlier answers. A request that finds all connections busy waits, and its wait counts. */
export async function steadily({ url, bytes }: { url: string; bytes: readonly [Buffer, ...Buffer[]] }, expected: Expected, { connections, perSecond, count }: { connections: number; perSecond: number; count: number }): Promise<{ firstMs: number; ms: number }[]> {
  const clients = await open(url, connections)
  const free = [...clients]
  const waiting: ((connection: Connection) => void)[] = []
  const begunMs = performance.now()

  async function one(n: number): Promise<{ firstMs: number; ms: number }> {
    const dueMs = performance.now()
    const connection = free.pop() ?? (await new Promise<Connection>((resolve) => waiting.push(resolve)))
    const waitedMs = performance.now() - dueMs
    const reply = await connection.ask(bytes[n % bytes.length] ?? bytes[0])
    check(reply, expected)
    const next = waiting.shift()
    if (next) next(connection)
    else free.push(connection)
    return { firstMs: waitedMs + reply.firstMs, ms: waitedMs + reply.ms }
  }

  const all: Promise<{ firstMs: number; ms: number }>[] = []
  for (let n = 0; n < count; n++) {
    const aheadMs = (n * 1000) / perSecond - (performance.now() - begunMs)
    if (aheadMs >= 1) await pause(aheadMs)
    all.push(one(n))
  }
  const taken = await Promise.all(all)
  for (const connection of clients) connection.close()
  return taken
}

/** Opens `count` streams one after another and leaves them open. Returns a function that closes them. */
export async function openStreams({ url, bytes }: Target, count: number): Promise<() => void> {
  const clients: Connection[] = []
  for (let n = 0; n < count; n++) {
    const connection = await openConnection(url)
    clients.push(connection)
    const status = await connection.begin(bytes)
    if (status !== 200) throw new Error(`a stream was answered ${status}`)
  }
  return () => {
    for (const connection of clients) connection.close()
  }
}

/** Sends each of `requests` once, in order, over so many connections. */
export async function each(url: string, requests: Buffer[], expected: Expected, connections: number): Promise<void> {
  const clients = await open(url, connections)
  let next = 0
  await Promise.all(
    clients.map(async (connection) => {
      for (let bytes = requests[next++]; bytes; bytes = requests[next++]) check(await connection.ask(bytes), expected)
    }),
  )
  for (const connection of clients) connection.close()
}

function open(url: string, count: number): Promise<Connection[]> {
  return Promise.all(Array.from({ length: count }, () => openConnection(url)))
}

function check({ status, tail }: Reply, expected: Expected): void {
  if (status !== expected.status || !tail.includes(expected.end)) throw new Error(`an answer was ${status}, and ended with ${tail}`)
}
