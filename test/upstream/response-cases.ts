/** Responses of servers that mean well and of others, what our parser makes of them, and what undici does: the cases of the fuzzer and of its bounded run. */
import { Duplex } from 'node:stream'
import { Client } from 'undici'
import { dropContinue } from '../../src/http/interim-answers.ts'
import { ProtocolError } from '../../src/upstream/http/response-head.ts'
import { ResponseParser } from '../../src/upstream/http/response-parser.ts'
import { randomOf } from './translation.ts'

/** `end`: `waits` where more must come. `isKept`: another request may follow on the connection. */
export type Outcome = { status: number; body: string; end: 'whole' | 'failed' | 'waits'; isKept: boolean }
/** What a server sends, read as latin1, and whether it closes the connection afterwards. */
export type Sent = { bytes: string; closes: boolean }

/** What our parser makes of bytes that are split at these places. */
export function byOurs({ bytes, closes }: Sent, splits: number[] = []): Outcome & { reason: string } {
  const seen = { status: 0, body: '', end: 'waits' as Outcome['end'], isKept: false, reason: '' }
  const parser = new ResponseParser({
    begun: ({ status, keepMs }) => Object.assign(seen, { status, isKept: keepMs > 0 }),
    data: (part) => void (seen.body += part.toString('latin1')),
    ended: () => void (seen.end = 'whole'),
    isPaused: () => false,
  })
  parser.expect()
  const all = Buffer.from(bytes, 'latin1')
  try {
    let from = 0
    for (const to of [...splits, all.length]) {
      parser.read(all.subarray(from, to))
      from = to
    }
    if (closes) parser.close()
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error
    seen.reason = error.message
    if (seen.end === 'waits') seen.end = 'failed'
    seen.isKept = false
  }
  if (seen.end !== 'whole') seen.isKept = false
  return seen
}

/** What undici makes of them over a socket in memory. */
export async function byUndici({ bytes, closes }: Sent): Promise<Outcome> {
  const socket = Object.assign(new Duplex({ read() {}, write: (_part, _encoding, done) => done() }), { setNoDelay() {}, setKeepAlive() {}, ref() {}, unref() {} })
  socket.on('error', () => {})
  const expectAnswer = dropContinue(socket)
  const client = new Client('http://upstream', { allowH2: false, pipelining: 1, headersTimeout: 0, bodyTimeout: 0, connect: (_options, done) => queueMicrotask(() => done(null, socket as never)) })
  const seen: Outcome = { status: 0, body: '', end: 'waits', isKept: false }
  client.dispatch(
    { method: 'POST', path: '/', body: '{}' },
    {
      onRequestStart() {
        expectAnswer()
        setImmediate(() => {
          socket.push(Buffer.from(bytes, 'latin1'))
          if (closes) socket.push(null)
        })
      },
      onResponseStart: (_controller, status) => void (status >= 200 && (seen.status = status)),
      onResponseData: (_controller, part) => void (seen.body += part.toString('latin1')),
      onResponseEnd: () => void (seen.end = 'whole'),
      onResponseError: () => void (seen.end = 'failed'),
    },
  )
  for (let turns = 0; turns < 5; turns++) await new Promise(setImmediate)
  const outcome = { ...seen, isKept: seen.end === 'whole' && !socket.destroyed && client.stats.connected }
  await client.destroy()
  return outcome
}

/** Where our parser is stricter: why it refuses what undici takes, and what is then in the bytes. */
const STRICTER: [string, RegExp, RegExp][] = [
  ['no transfer coding but chunked, once', /another transfer-encoding/, /transfer-encoding:(?![\t ]*chunked[\t ]*\r\n)|transfer-encoding:[^]*transfer-encoding:/i],
  ['no version but 1.0 and 1.1', /malformed|not HTTP/, /HTTP\/(?!1\.[01] )\d\./],
  ['no control characters in a reason phrase', /malformed/, /HTTP\/1\.[01] \d{3} [^\r\n]*[^\t\r\n -~\x80-\xff]/],
  ['no line end before a head or within an interim answer, and no bare one', /malformed|not HTTP/, /^[\r\n]|\r\n\r\n[\r\n]|[^\r]\n|\r[^\n]/],
  ['no interim answer that only begins like one', /malformed/, /HTTP\/1\.1 100(?! |\r\n)/],
  ['no status below 100', /malformed/, /HTTP\/1\.[01] 0/],
  ['no length that a number does not count exactly', /content-length that/, /content-length:[ \t]*\d{16}/i],
  ['no chunk of more bytes than a number counts exactly', /malformed chunk/, /\n[0-9a-f]{14}/i],
  ['no line end behind a response', /nobody asked for/, /[\r\n]+$/],
]
/** It takes a chunk extension without a name, which undici refuses or reads otherwise (RFC 9112, section 7.1.1). */
const NAMELESS_EXTENSION = /\n[0-9a-f]+;(?:[^\r]*;)?[\t ]*(?:[=\r]|$)/i
/** It takes white space behind a value, which undici does not everywhere (RFC 9110, section 5.5). */
const SPACE_BEHIND_VALUE = /((?:content-length|transfer-encoding):[^\r\n]*?)[\t ]+(?=\r\n)/gi

/** What differs without a reason above, or null. */
export function differenceOf(sent: Sent, ours: Outcome & { reason: string }, theirs: Outcome): string | null {
  const said = `ours ${JSON.stringify(ours)}, theirs ${JSON.stringify(theirs)}`
  const isHttp10 = /HTTP\/1\.0 /.test(sent.bytes)
  if (NAMELESS_EXTENSION.test(sent.bytes)) return null
  // It is told what a head holds only once that is whole, and so are trailers.
  if (ours.end === 'waits' && theirs.end === 'failed' && !sent.closes) return ours.status === 0 || /\n0+(;[^\r]*)?\r/.test(sent.bytes) ? null : said
  if (ours.end === 'failed' && theirs.end === 'failed') return theirs.body.startsWith(ours.body) ? null : said
  if (ours.end === 'failed' || ours.reason !== '')
    if (STRICTER.some(([, reason, pattern]) => reason.test(ours.reason) && pattern.test(sent.bytes)) && theirs.body.startsWith(ours.body)) return null
  if (ours.status !== theirs.status || ours.body !== theirs.body || ours.end !== theirs.end) return said
  // Connections of HTTP/1.0 are kept where the server says so, does not say otherwise as well, and knows where the body ends.
  return ours.isKept === theirs.isKept || (isHttp10 && !ours.isKept) ? null : said
}

/** Whole numbers in [0, below), the same for each seed. */
function numbersOf(seed: number): (below: number) => number {
  const random = randomOf(seed)
  return (below) => Math.floor(random() * below)
}

const STATUS_LINES = ['HTTP/1.1 200 OK', 'HTTP/1.1 200 OK', 'HTTP/1.1 200 OK', 'HTTP/1.1 200', 'HTTP/1.1 200 ', 'HTTP/1.0 200 OK', 'HTTP/1.1 204 No Content', 'HTTP/1.1 304 Not Modified', 'HTTP/1.1 429 Too Many', 'HTTP/1.1 503 a\tb \xff', 'HTTP/1.1 099 x', 'HTTP/1.1 20 x', 'HTTP/1.1 2000 x', 'HTTP/2.0 200 OK', 'HTTP/1.1  200 OK', 'http/1.1 200 OK', 'HTTP/1.1 101 Switching Protocols', 'ICY 200 OK']
const FIELDS = ['content-type: text/event-stream', 'Content-Type:application/json', 'Connection: close', 'connection: Keep-Alive', 'connection: x, close', 'connection: keep-alive\r\nconnection: close', 'keep-alive: timeout=5', 'keep-alive: timeout=1', 'Keep-Alive: max=5, timeout=60', 'retry-after: 1', 'x:', 'x: \t ', '!#$%: \xff', 'set-cookie: a\r\nset-cookie: b', 'x y: z', 'x : z', ': z', 'x', 'x: a\x00b', 'x: a\rb', 'x: a\nb', 'x: a\r\n b', 'x: \x7f', 'x: \x01', 'x\xe9: y', 'upgrade: h2c', 'content-encoding: gzip']
const INTERIM = ['HTTP/1.1 100 Continue\r\n\r\n', 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n', 'HTTP/1.1 102 Processing\r\n\r\n']
const BEHIND = ['\r\n', 'x', 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n']
const BODIES = ['', 'a', 'x'.repeat(54), '{"a":"\xff"}', 'data: x\r\n\r\n', 'HTTP/1.1 200 OK\r\n\r\n', '0\r\n\r\n']
const SIZES = ['g', '', ' 1', '1 ', '-1', '0x1', '1;', '1;a=b', '1;a="b c"', '1;\x01', '00000001', '10000000000000000', 'fffffffffffffff', '1\n', '1\r', '+1', '1\t']

/** A response, and how the server goes on. */
export function sentOf(seed: number): Sent {
  const next = numbersOf(seed)
  const oneOf = (list: readonly string[]) => list[next(list.length)] ?? ''
  const rarely = (text: () => string) => (next(8) === 0 ? text() : '')
  const body = oneOf(BODIES)
  const [framing, framed] = next(2) === 0 ? lengthOf(body, next, oneOf) : chunksOf(body, next, oneOf)
  const fields = Array.from({ length: next(4) }, () => oneOf(next(3) === 0 ? FIELDS : FIELDS.slice(0, 14)))
  fields.splice(next(fields.length + 1), 0, ...framing)
  const statusLine = oneOf(next(4) === 0 ? STATUS_LINES : STATUS_LINES.slice(0, 9))
  const whole = `${rarely(() => oneOf(INTERIM))}${statusLine}\r\n${fields.map((field) => `${field}\r\n`).join('')}\r\n${framed}${rarely(() => oneOf(BEHIND))}`
  return { bytes: damaged(whole, next), closes: next(3) === 0 }
}

function lengthOf(body: string, next: (below: number) => number, oneOf: (list: string[]) => string): [string[], string] {
  if (next(8) > 0) return [[`content-length: ${body.length}`], body]
  const odd = oneOf(['', '-1', '+1', '1e1', '1 1', '1,1', '0x1', '99999999999999999999', `${body.length + 1}`, `0${body.length}`, ` ${body.length}\t`])
  return [[[], [`content-length: ${odd}`], ['content-length: 1', 'content-length: 1'], ['content-length: 1', 'Content-Length: 2']][next(4)] ?? [], body]
}

function chunksOf(body: string, next: (below: number) => number, oneOf: (list: string[]) => string): [string[], string] {
  const half = Math.floor(body.length / 2)
  const sizeOf = (length: number) => (next(2) === 0 ? length.toString(16) : length.toString(16).toUpperCase()) + (next(8) === 0 ? oneOf([';a=b', ';a="b c"', ';x;y']) : '')
  const chunks = [body.slice(0, half), body.slice(half)].filter((part) => part !== '').map((part) => `${sizeOf(part.length)}\r\n${part}\r\n`)
  const trailers = next(8) === 0 ? oneOf(['x: y\r\n', 'x\r\n', 'x: y\r\nz: \x01\r\n', 'content-length: 5\r\n', ' x: y\r\n']) : ''
  const odd = next(8) === 0 ? `${oneOf(SIZES)}\r\na\r\n` : ''
  const encoding = next(8) === 0 ? oneOf(['gzip', 'gzip, chunked', 'chunked, gzip', 'identity', 'chunked;q=1', 'xchunked', '', 'chunked\r\ntransfer-encoding: chunked', 'chunked\r\ncontent-length: 3', ' Chunked\t']) : 'chunked'
  return [[`transfer-encoding: ${encoding}`], `${chunks.join('')}${odd}0\r\n${trailers}\r\n`]
}

/** Cut off, or with one byte replaced, removed or added, once in three times. */
function damaged(text: string, next: (below: number) => number): string {
  const at = next(text.length)
  const byte = String.fromCharCode(next(4) === 0 ? next(256) : ('\r\n :;,0a'.charCodeAt(next(8)) || 0))
  switch (next(12)) {
    case 0:
      return text.slice(0, at)
    case 1:
      return text.slice(0, at) + byte + text.slice(at + 1)
    case 2:
      return text.slice(0, at) + text.slice(at + 1)
    case 3:
      return text.slice(0, at) + byte + text.slice(at)
    default:
      return text
  }
}

/** Compares both readers on the response of a seed, and ours with itself when it gets each byte alone. */
export async function checkResponse(seed: number): Promise<{ bytes: string; ours: Outcome; difference: string | null }> {
  const sent = sentOf(seed)
  const ours = byOurs(sent)
  const single = byOurs(sent, Array.from({ length: sent.bytes.length }, (_, at) => at))
  const isEqual = JSON.stringify({ ...single, reason: '' }) === JSON.stringify({ ...ours, reason: '' })
  const theirs = await byUndici({ ...sent, bytes: sent.bytes.replace(SPACE_BEHIND_VALUE, '$1') })
  return { bytes: sent.bytes, ours, difference: isEqual ? differenceOf(sent, ours, theirs) : `byte by byte ${JSON.stringify(single)}, at once ${JSON.stringify(ours)}` }
}
