/** One kept HTTP/1.1 connection that costs the machine as little as it can: the bytes go out as they are, of an answer only the frame is read. */
import { connect } from 'node:net'

export type Reply = {
  status: number
  /** Milliseconds to the first byte of the body, and to the end of it. */
  firstMs: number
  ms: number
  /** The last bytes of the body, as they came. */
  tail: string
}

export type Connection = {
  /** Sends one request; one at a time. Rejects when the connection breaks. */
  ask(bytes: Buffer): Promise<Reply>
  /** Sends one request, and resolves with the status as soon as there is a first byte of a body. The connection is of no use afterwards. */
  begin(bytes: Buffer): Promise<number>
  close(): void
}

const TAIL = 256
const CHUNKED_END = '0\r\n\r\n'

type Asking = { sentMs: number; status: number; firstMs: number; head: string; left: number | null; tail: string; only: 'first' | 'all'; resolve: (reply: Reply) => void; reject: (error: Error) => void }

export async function openConnection(url: string): Promise<Connection> {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port), noDelay: true })
  let asking: Asking | null = null

  function fail(error: Error): void {
    asking?.reject(error)
    asking = null
  }
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the connection was closed')))
  socket.on('data', (chunk: Buffer) => {
    if (!asking || !take(asking, chunk)) return
    const { status, sentMs, firstMs, tail, resolve } = asking
    asking = null
    resolve({ status, firstMs, ms: performance.now() - sentMs, tail })
  })

  function ask(bytes: Buffer, only: Asking['only'] = 'all'): Promise<Reply> {
    return new Promise((resolve, reject) => {
      asking = { sentMs: performance.now(), status: 0, firstMs: 0, head: '', left: null, tail: '', only, resolve, reject }
      socket.write(bytes)
    })
  }
  return {
    ask: (bytes) => ask(bytes),
    begin: async (bytes) => (await ask(bytes, 'first')).status,
    close: () => socket.destroy(),
  }
}

/** Takes bytes of an answer; true once it is whole. */
function take(asking: Asking, chunk: Buffer): boolean {
  let body = chunk
  if (asking.status === 0) {
    asking.head += chunk.toString('latin1')
    const end = asking.head.indexOf('\r\n\r\n')
    if (end < 0) return false
    body = Buffer.from(asking.head.slice(end + 4), 'latin1')
    asking.status = Number(asking.head.slice(9, 12))
    const length = /\r\ncontent-length: *(\d+)/i.exec(asking.head.slice(0, end))?.[1]
    asking.left = length === undefined ? null : Number(length)
  }
  if (body.length > 0 && asking.firstMs === 0) asking.firstMs = performance.now() - asking.sentMs
  if (asking.only === 'first') return body.length > 0
  asking.tail = (asking.tail + body.toString('latin1', Math.max(0, body.length - TAIL))).slice(-TAIL)
  if (asking.left === null) return asking.tail.endsWith(CHUNKED_END)
  asking.left -= body.length
  return asking.left <= 0
}
