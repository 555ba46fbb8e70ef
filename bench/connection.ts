/** Low-overhead HTTP/1.1 client connection with keep-alive: requests are prepared bytes, and only the framing of an answer is parsed. */
import { connect } from 'node:net'

export type Reply = {
  status: number
  /** Milliseconds to the first byte of the body, and to the end of it. */
  firstMs: number
  ms: number
  /** The last bytes of the body, as received. */
  tail: string
}

export type Connection = {
  /** Sends one request; one at a time. Rejects when the connection breaks. */
  ask(bytes: Buffer): Promise<Reply>
  /** Sends one request, and resolves with the status at the first byte of the body. The connection cannot be used afterwards. */
  begin(bytes: Buffer): Promise<number>
  close(): void
}

const TAIL = 256
const CHUNKED_END = '0\r\n\r\n'

type Exchange = { sentMs: number; status: number; firstMs: number; head: string; left: number | null; tail: string; only: 'first' | 'all'; resolve: (reply: Reply) => void; reject: (error: Error) => void }

export async function openConnection(url: string): Promise<Connection> {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port), noDelay: true })
  let exchange: Exchange | null = null

  function fail(error: Error): void {
    exchange?.reject(error)
    exchange = null
  }
  await new Promise<void>((resolve, reject) => {
    socket.once('connect', resolve)
    socket.once('error', reject)
  })
  socket.on('error', fail)
  socket.on('close', () => fail(new Error('the connection was closed')))
  socket.on('data', (chunk: Buffer) => {
    if (!exchange || !take(exchange, chunk)) return
    const { status, sentMs, firstMs, tail, resolve } = exchange
    exchange = null
    resolve({ status, firstMs, ms: performance.now() - sentMs, tail })
  })

  function ask(bytes: Buffer, only: Exchange['only'] = 'all'): Promise<Reply> {
    return new Promise((resolve, reject) => {
      exchange = { sentMs: performance.now(), status: 0, firstMs: 0, head: '', left: null, tail: '', only, resolve, reject }
      socket.write(bytes)
    })
  }
  return {
    ask: (bytes) => ask(bytes),
    begin: async (bytes) => (await ask(bytes, 'first')).status,
    close: () => socket.destroy(),
  }
}

/** Adds received bytes to the exchange; true when the answer is complete. */
function take(exchange: Exchange, chunk: Buffer): boolean {
  let body = chunk
  if (exchange.status === 0) {
    exchange.head += chunk.toString('latin1')
    const end = exchange.head.indexOf('\r\n\r\n')
    if (end < 0) return false
    body = Buffer.from(exchange.head.slice(end + 4), 'latin1')
    exchange.status = Number(exchange.head.slice(9, 12))
    const length = /\r\ncontent-length: *(\d+)/i.exec(exchange.head.slice(0, end))?.[1]
    exchange.left = length === undefined ? null : Number(length)
  }
  if (body.length > 0 && exchange.firstMs === 0) exchange.firstMs = performance.now() - exchange.sentMs
  if (exchange.only === 'first') return body.length > 0
  exchange.tail = (exchange.tail + body.toString('latin1', Math.max(0, body.length - TAIL))).slice(-TAIL)
  if (exchange.left === null) return exchange.tail.endsWith(CHUNKED_END)
  exchange.left -= body.length
  return exchange.left <= 0
}
