/** A thread of the database: it opens the file, to write or to read, and runs the verbs that it receives. */
import { parentPort, workerData } from 'node:worker_threads'
import { openDatabase, openToRead, type Database } from './database.ts'
import { failureOf, type Call, type FromThread, type Reply, type ThreadData, type ToThread } from './database-thread-messages.ts'
import { UPGRADES } from './migrations.ts'
import { openVerbs } from './database-verbs.ts'

const port = parentPort
if (!port) throw new Error('this module runs as a thread')
const { file, kind } = workerData as ThreadData
const post = (message: FromThread) => port.postMessage(message)
let database: Database | null = null
let verbs: Record<string, (...args: unknown[]) => Promise<unknown>> = {}
let replies: Reply[] = []

port.on('message', (message: ToThread) => {
  if (message === 'open') open()
  else if (message === 'close') void close()
  else for (const call of message) void run(call)
})

function open(): void {
  try {
    database = kind === 'writer' ? openDatabase(file, UPGRADES, { marks: true }) : openToRead(file, UPGRADES)
    verbs = openVerbs(database) as unknown as typeof verbs
    post({ verbs: Object.keys(verbs) })
  } catch (error) {
    post({ notOpened: failureOf(error) })
  }
}

async function run({ id, verb, args }: Call): Promise<void> {
  try {
    reply({ id, value: await verbs[verb]?.(...args) })
  } catch (error) {
    reply({ id, failure: failureOf(error) })
  }
}

/** Sends the replies of a turn together: those of one transaction, for example. */
function reply(one: Reply): void {
  if (replies.push(one) === 1) setImmediate(send)
}

function send(): void {
  const sent = replies
  replies = []
  try {
    post({ replies: sent })
  } catch {
    // A reply that cannot be cloned is one with an unusual error.
    post({
      replies: sent.map(({ id, failure }) => ({
        id,
        failure: { unavailable: failure?.unavailable ?? false, error: new Error(String(failure?.error)) },
      })),
    })
  }
}

async function close(): Promise<void> {
  await database?.close()
  // After the replies that are due.
  setImmediate(() => setImmediate(() => port?.close()))
}
