/** The parser of responses: each rule at every way of splitting the bytes, and what it makes of generated responses beside undici. */
import t from 'tap'
import { byOurs, byUndici, checkResponse, type Outcome } from './response-cases.ts'

const OK = 'HTTP/1.1 200 OK\r\n'
const CHUNKED = `${OK}transfer-encoding: chunked\r\n\r\n`
const LONG = 'x'.repeat(17_000)

/** `stricter`: refused, where undici takes it. */
type Expected = 'refused' | 'stricter' | { body?: string; status?: number; isKept?: boolean; end?: Outcome['end'] }
/** What a server sends, how it goes on, and what is made of it. */
const ROWS: [string, string, 'open' | 'closed', Expected][] = [
  ['a body by its length', `${OK}Content-Length:\t2\r\n\r\nab`, 'open', { body: 'ab', isKept: true }],
  ['white space behind a length', `${OK}content-length:2 \t\r\n\r\nab`, 'open', { body: 'ab', isKept: true }],
  ['no body', `${OK}content-length: 0\r\n\r\n`, 'open', { isKept: true }],
  ['chunks, with extensions and trailers, which are dropped', `${CHUNKED}2;a=b;c="d e"\r\nab\r\n01B\r\n${'x'.repeat(27)}\r\n0;x\r\ny: z\r\nz:\r\n\r\n`, 'open', { body: `ab${'x'.repeat(27)}`, isKept: true }],
  ['a body to the end of the connection', `${OK}\r\nab`, 'closed', { body: 'ab' }],
  ['the same while the connection lasts', `${OK}\r\nab`, 'open', { body: 'ab', end: 'waits' }],
  ['204 and 304 have no body', 'HTTP/1.1 204 No Content\r\n\r\n', 'open', { status: 204, isKept: true }],
  ['a length that is not for a 304', 'HTTP/1.1 304 Not Modified\r\ncontent-length: 5\r\n\r\n', 'open', { status: 304 }],
  ['Connection: close in a list', `${OK}connection: x\r\nConnection: y , Close\r\ncontent-length: 0\r\n\r\n`, 'open', {}],
  ['HTTP/1.0', 'HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\na', 'open', { body: 'a' }],
  ['HTTP/1.0 that keeps the connection', 'HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 1\r\n\r\na', 'open', { body: 'a', isKept: true }],
  ['HTTP/1.0 with chunks', CHUNKED.replace('1.1', '1.0').replace('\r\n\r\n', '\r\nconnection: keep-alive\r\n\r\n') + '1\r\na\r\n0\r\n\r\n', 'open', { body: 'a' }],
  ['a connection that lasts too short a time', `${OK}keep-alive: max=9, timeout=2\r\ncontent-length: 0\r\n\r\n`, 'open', {}],
  ['interim answers', `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 x\r\nlink: <a>\r\n\r\n${OK}content-length: 1\r\n\r\na`, 'open', { body: 'a', isKept: true }],
  ['as many of them as anybody needs', `${'HTTP/1.1 102 x\r\n\r\n'.repeat(100)}${OK}content-length: 0\r\n\r\n`, 'open', { isKept: true }],
  ['more of them', `${'HTTP/1.1 102 x\r\n\r\n'.repeat(101)}${OK}content-length: 0\r\n\r\n`, 'open', 'stricter'],
  ['another protocol', 'HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n', 'open', 'refused'],
  ['a status without a reason', 'HTTP/1.1 429\r\ncontent-length: 0\r\n\r\n', 'open', { status: 429, isKept: true }],
  ...['HTTP/1.1 20 OK', 'HTTP/1.1 2000 OK', 'HTTP/1.1  200 OK', 'HTTP/1.1 099 OK', 'http/1.1 200 OK', ' HTTP/1.1 200 OK', 'NOT HTTP'].map((line): [string, string, 'open', Expected] => [`the status line ${JSON.stringify(line)}`, `${line}\r\ncontent-length: 0\r\n\r\n`, 'open', 'refused']),
  ...['HTTP/2.0 200 OK', 'HTTP/1.1 200 a\x07'].map((line): [string, string, 'open', Expected] => [`the status line ${JSON.stringify(line)}`, `${line}\r\ncontent-length: 0\r\n\r\n`, 'open', 'stricter']),
  ...['x y: z', 'x : z', ': z', 'x', ' x: y', 'x: a\r\n folded', 'x: a\rb', 'x: a\nb', 'x: a\0b', 'x: \x7f', 'x\xe9: y'].map((field): [string, string, 'open', Expected] => [`the field ${JSON.stringify(field)}`, `${OK}${field}\r\ncontent-length: 0\r\n\r\n`, 'open', 'refused']),
  ...['', '-1', '+1', '1e3', '0x1', '1 1', '1, 1', '\xa01'].map((length): [string, string, 'open', Expected] => [`the length ${JSON.stringify(length)}`, `${OK}content-length: ${length}\r\n\r\na`, 'open', 'refused']),
  ['a long length', `${OK}content-length: 1234567890123456\r\n\r\na`, 'open', 'stricter'],
  ['the length twice', `${OK}content-length: 1\r\nContent-Length: 1\r\n\r\na`, 'open', 'refused'],
  ['two lengths', `${OK}content-length: 1\r\ncontent-length: 2\r\n\r\na`, 'open', 'refused'],
  ['a length and chunks', `${OK}content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n`, 'open', 'refused'],
  ['chunks and a length', `${OK}transfer-encoding: chunked\r\ncontent-length: 1\r\n\r\n0\r\n\r\n`, 'open', 'refused'],
  ...['', 'gzip', 'gzip, chunked', 'chunked, chunked', 'identity', 'xchunked', 'chunked;q=1', 'chunked\xa0', 'chunked\r\ntransfer-encoding: chunked'].map((coding): [string, string, 'open', Expected] => [`the coding ${JSON.stringify(coding)}`, `${OK}transfer-encoding: ${coding}\r\n\r\n0\r\n\r\n`, 'open', 'stricter']),
  ...['', 'g', ' 1', '1 ', '-1', '+1', '0x1', ';a', '1\n', '1\rx', '1;\x01', '1;a\n'].map((size): [string, string, 'open', Expected] => [`the chunk size ${JSON.stringify(size)}`, `${CHUNKED}${size}\r\na\r\n0\r\n\r\n`, 'open', 'refused']),
  ...['00000000000000001', '20000000000000', `1;${LONG}`].map((size): [string, string, 'open', Expected] => [`the chunk size ${JSON.stringify(size.slice(0, 20))}`, `${CHUNKED}${size}\r\na\r\n0\r\n\r\n`, 'open', 'stricter']),
  ['a chunk that is longer than it says', `${CHUNKED}1\r\nab\r\n0\r\n\r\n`, 'open', 'refused'],
  ['a chunk with a bare line end', `${CHUNKED}1\r\na\n0\r\n\r\n`, 'open', 'refused'],
  ['extensions of many chunks', `${CHUNKED}${`1;${'x'.repeat(1000)}\r\na\r\n`.repeat(17)}0\r\n\r\n`, 'open', 'stricter'],
  ...['x', ' x: y', 'x: \x01', 'content-length: 5', `x: ${LONG}`].map((trailer): [string, string, 'open', Expected] => [`the trailer ${JSON.stringify(trailer.slice(0, 20))}`, `${CHUNKED}1\r\na\r\n0\r\n${trailer}\r\n\r\n`, 'open', 'refused']),
  ['a trailer that says how the body is coded', `${CHUNKED}0\r\nTransfer-Encoding: chunked\r\n\r\n`, 'open', 'stricter'],
  ['a long head', `${OK}x: ${LONG}\r\ncontent-length: 0\r\n\r\n`, 'open', 'refused'],
  ['a head without an end', `${OK}x: ${LONG}`, 'open', 'refused'],
  ['what is not HTTP and does not end', 'SSH-2.0-x', 'open', 'refused'],
  ['no response', '', 'closed', 'refused'],
  ['a head that is cut off', OK, 'closed', 'refused'],
  ['a body that is cut off', `${OK}content-length: 2\r\n\r\na`, 'closed', 'refused'],
  ['chunks that are cut off', `${CHUNKED}1\r\na\r\n`, 'closed', 'refused'],
  ['trailers that are cut off', `${CHUNKED}0\r\n`, 'closed', 'refused'],
]
/** The response is whole, and the connection is not to be trusted any more. */
const BEHIND = ['x', '\r\n', `${OK}content-length: 0\r\n\r\n`]

function outcomeOf(expected: Expected, outcome: Outcome): Partial<Outcome> {
  if (typeof expected === 'string') return { end: 'failed', isKept: false, status: outcome.status, body: outcome.body }
  return { status: 200, body: '', end: 'whole', isKept: false, ...expected }
}

for (const [name, bytes, state, expected] of ROWS) t.test(`${name}: ${typeof expected === 'string' ? 'refused' : 'read'} alike however the bytes are split`, async (t) => {
  const sent = { bytes, closes: state === 'closed' }
  const { reason, ...whole } = byOurs(sent)
  t.same(whole, outcomeOf(expected, whole))
  if (typeof expected === 'string') t.not(reason, '')
  const step = Math.max(1, Math.floor(bytes.length / 300))
  for (let at = 1; at < bytes.length; at += step) {
    const { reason: _reason, ...split } = byOurs(sent, [at])
    if (JSON.stringify(split) !== JSON.stringify(whole)) t.fail(`split at ${at}`, split)
  }
})

t.test('what follows a response that is whole leaves it as it is, and ends the connection', async (t) => {
  for (const behind of BEHIND) for (const response of [`${OK}content-length: 1\r\n\r\na`, `${CHUNKED}1\r\na\r\n0\r\n\r\n`]) {
    const bytes = response + behind
    for (let at = 1; at < bytes.length; at++) t.match(byOurs({ bytes, closes: false }, [at]), { status: 200, body: 'a', end: 'whole', isKept: false, reason: /nobody asked for/ })
  }
})

t.test('undici reads the rows alike, but for those where ours is stricter, and two', async (t) => {
  const differing: string[] = []
  for (const [name, bytes, state, expected] of ROWS) {
    const sent = { bytes, closes: state === 'closed' }
    const { reason: _reason, ...ours } = byOurs(sent)
    const theirs = await byUndici(sent)
    if (expected === 'stricter') t.not(theirs.end, 'failed', name)
    else if (ours.end !== theirs.end || ours.isKept !== theirs.isKept) differing.push(name)
  }
  t.same(differing, ['white space behind a length', 'HTTP/1.0 with chunks'])
})

const CASES = 2_000

t.test(`the outcome of ${CASES} generated responses, valid and broken, is that of undici, or differs for a reason that is listed`, async (t) => {
  const ends = new Set<string>()
  for (let seed = 1; seed <= CASES; seed++) {
    const { bytes, ours, difference } = await checkResponse(seed)
    if (difference !== null) return t.fail(`node test/upstream/response-fuzz.ts --cases 1 --seed ${seed}`, { bytes, difference })
    ends.add(`${ours.end}, ${ours.isKept ? 'kept' : 'closed'}`)
  }
  t.same([...ends].sort(), ['failed, closed', 'waits, closed', 'whole, closed', 'whole, kept'], 'every outcome was reached')
})
