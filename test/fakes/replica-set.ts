/**
 * A replica set of one member in front of a server of MongoDB's protocol, which need not be one: it says that it is, knows each write that a driver repeats by its transaction number as mongod
 * does, and is without a primary after `replSetStepDown` for as many seconds. What becomes of a command on its way is the test's to decide.
 */
import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { BSON, type Document } from 'mongodb'

/**
 * `lost`: the connection ends before the server has the command; `unanswered`: once the server has executed it; `late`: before, and the server gets it some time after that. `delayed`: others
 * overtake it; `doubled`: the server gets it twice; `refused`: the primary has stepped down.
 */
export type Fate = 'passes' | (typeof FATES)[number]
export const FATES = ['lost', 'unanswered', 'late', 'delayed', 'doubled', 'refused'] as const

export type ReplicaSet = {
  /** Without a database's name. */
  url: string
  /** Called with each command but `hello`, with its documents, before anything becomes of it. */
  decide(fateOf: (command: Document) => Fate): void
  /** As `replSetStepDown` does; resolves once there is a primary again. */
  stepDown(seconds: number): Promise<void>
  close(): Promise<void>
}

type Message = { id: number; opCode: number; command: Document; bytes: Buffer }

const OP_REPLY = 1
const OP_QUERY = 2004
const OP_MSG = 2013
const HEADER = 16
const HELLO = ['hello', 'ismaster', 'isMaster']
const LATE_MS = 400
/** Repeated writes that are known. */
const MAX_KNOWN = 10_000

/** `url`: of the server. */
export async function openReplicaSet(url: string): Promise<ReplicaSet> {
  const server = Number(new URL(url).port)
  const open = new Set<Socket>()
  const executed = new Map<string, Promise<Document>>()
  let fateOf: (command: Document) => Fate = () => 'passes'
  let isPrimary = true
  let term = 1
  let port = 0

  async function serve(near: Socket): Promise<void> {
    const far = await dial(server)
    // The server answers what it has got, also where the client is gone.
    await read(near, async (message) => {
      const answer = await answerTo(message, near, (command) => far.ask(message, command))
      if (answer && !near.destroyed) near.write(encode(message, answer))
    }).finally(far.end)
  }

  /** Null where none is sent. */
  async function answerTo(message: Message, near: Socket, ask: (command: Document) => Promise<Document>): Promise<Document | null> {
    const { command } = message
    const [name = ''] = Object.keys(command)
    if (HELLO.includes(name)) return asMember(await ask(command))
    if (name === 'replSetStepDown') {
      void stepDown(Number(command[name]))
      return null
    }
    const execute = (by = ask): Promise<Document> => {
      const { txnNumber, ...sent } = command
      if (txnNumber === undefined) return by(sent)
      const id = `${String(command['lsid'].id.toString('hex'))} ${String(txnNumber)}`
      const known = executed.get(id) ?? by(sent)
      executed.set(id, known)
      known.catch(() => executed.delete(id))
      if (executed.size > MAX_KNOWN) executed.delete(executed.keys().next().value as string)
      return known
    }
    const fate = isPrimary ? fateOf(command) : 'refused'
    if (fate === 'refused') return NOT_PRIMARY
    if (fate === 'delayed') await pause(LATE_MS)
    if (fate === 'lost' || fate === 'late') near.destroy()
    if (fate === 'lost') return null
    if (fate === 'late') {
      await pause(LATE_MS)
      const again = await dial(server)
      await execute((sent) => again.ask(message, sent)).finally(again.end)
      return null
    }
    const answer = await execute()
    if (fate === 'doubled') await execute()
    if (fate !== 'unanswered') return answer
    near.destroy()
    return null
  }

  function asMember({ topologyVersion: _streams, ...hello }: Document): Document {
    const me = `127.0.0.1:${port}`
    const role = { isWritablePrimary: isPrimary, ismaster: isPrimary, secondary: !isPrimary, ...(isPrimary ? { primary: me } : {}) }
    return { ...hello, ...role, setName: 'fake', setVersion: 1, electionId: new BSON.ObjectId(String(term).padStart(24, '0')), hosts: [me], me }
  }

  async function stepDown(seconds: number): Promise<void> {
    isPrimary = false
    for (const one of open) one.destroy()
    await pause(seconds * 1000, undefined, { ref: false })
    term++
    isPrimary = true
  }

  const listener = createServer((near) => {
    open.add(near.on('error', () => {}))
    near.on('close', () => open.delete(near))
    void serve(near).catch(() => near.destroy())
  })
  await once(listener.listen(0, '127.0.0.1'), 'listening')
  port = (listener.address() as AddressInfo).port
  return {
    url: `mongodb://127.0.0.1:${port}/`,
    decide(decided) {
      fateOf = decided
    },
    stepDown,
    async close() {
      for (const one of open) one.destroy()
      await new Promise((resolve) => listener.close(resolve))
    },
  }
}

/** As mongod answers writes; reads are repeated by the code. */
const NOT_PRIMARY: Document = { ok: 0, code: 10107, codeName: 'NotWritablePrimary', errmsg: 'not primary', errorLabels: ['RetryableWriteError'] }

/** A connection to the server, which answers in turn. */
async function dial(port: number): Promise<{ ask(message: Message, command: Document): Promise<Document>; end(): void }> {
  const socket = connect(port, '127.0.0.1').on('error', () => {})
  await once(socket, 'connect')
  const waiting: PromiseWithResolvers<Document>[] = []
  void read(socket, async ({ command }) => waiting.shift()?.resolve(command)).finally(() => {
    for (const one of waiting) one.reject(new Error('the server has closed the connection'))
  })
  return {
    ask(message, command) {
      const answer = Promise.withResolvers<Document>()
      waiting.push(answer)
      socket.write(encodeCommand(message, command))
      return answer.promise
    },
    end: () => socket.destroy(),
  }
}

/** Each message in turn, until the connection ends. */
async function read(socket: Socket, each: (message: Message) => Promise<void>): Promise<void> {
  let buffer = Buffer.alloc(0)
  try {
    for await (const chunk of socket) {
      buffer = Buffer.concat([buffer, chunk as Buffer])
      while (buffer.length >= 4 && buffer.length >= buffer.readInt32LE(0)) {
        const bytes = buffer.subarray(0, buffer.readInt32LE(0))
        buffer = buffer.subarray(bytes.length)
        await each(decode(bytes))
      }
    }
  } catch {
    socket.destroy()
  }
}

function decode(bytes: Buffer): Message {
  const [id, opCode] = [bytes.readInt32LE(4), bytes.readInt32LE(12)]
  const documentAt = (at: number): Document => BSON.deserialize(bytes.subarray(at, at + bytes.readInt32LE(at)), { promoteValues: true, promoteLongs: false })
  if (opCode === OP_REPLY) return { id, opCode, bytes, command: documentAt(HEADER + 20) }
  if (opCode === OP_QUERY) return { id, opCode, bytes, command: documentAt(bytes.indexOf(0, HEADER + 4) + 9) }
  if (opCode !== OP_MSG) throw new Error(`a message of kind ${opCode}`)
  let command: Document = {}
  for (let at = HEADER + 4; at < bytes.length; ) {
    if (bytes[at++] === 0) {
      command = { ...documentAt(at), ...command }
      at += bytes.readInt32LE(at)
      continue
    }
    const end = at + bytes.readInt32LE(at)
    const zero = bytes.indexOf(0, at + 4)
    const documents: Document[] = []
    for (let from = zero + 1; from < end; from += bytes.readInt32LE(from)) documents.push(documentAt(from))
    command = { ...command, [bytes.toString('utf8', at + 4, zero)]: documents }
    at = end
  }
  return { id, opCode, bytes, command }
}

/** With the documents in the command itself: the server takes both. */
function encodeCommand({ id, opCode, bytes }: Message, command: Document): Buffer {
  return opCode === OP_QUERY ? bytes : framed(id, 0, OP_MSG, Buffer.concat([Buffer.alloc(5), BSON.serialize(command)]))
}

function encode({ id, opCode }: Message, answer: Document): Buffer {
  const document = BSON.serialize(answer)
  if (opCode === OP_MSG) return framed(0, id, OP_MSG, Buffer.concat([Buffer.alloc(5), document]))
  const head = Buffer.alloc(20)
  head.writeInt32LE(1, 16)
  return framed(0, id, OP_REPLY, Buffer.concat([head, document]))
}

function framed(id: number, responseTo: number, opCode: number, body: Buffer): Buffer {
  const header = Buffer.alloc(HEADER)
  header.writeInt32LE(HEADER + body.length, 0)
  header.writeInt32LE(id, 4)
  header.writeInt32LE(responseTo, 8)
  header.writeInt32LE(opCode, 12)
  return Buffer.concat([header, body])
}
