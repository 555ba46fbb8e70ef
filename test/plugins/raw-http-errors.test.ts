/** HTTP errors before or outside of a route, over a raw socket: each has a body in the error format of the API that was called. */
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { join } from 'node:path'
import t from 'tap'
import { openEmbeddedProgram } from './embedded-program.ts'

const documented = readFileSync(join(import.meta.dirname, '../../docs/errors.md'), 'utf8')
const { app, key } = await openEmbeddedProgram(t)
const { port } = new URL(await app.listen({ port: 0, host: '127.0.0.1' }))
const MEDIA = `Authorization: Bearer ${await key('demo-media-key')}\r\n`
const CODING = `Authorization: Bearer ${await key('demo-coding-key')}\r\n`
const HOST = 'Host: 127.0.0.1\r\n'
const JSON_BODY = 'Content-Type: application/json\r\n'

type Answer = { status: number; headers: Record<string, string>; body: Record<string, unknown> & { error: Record<string, unknown> } }

/** The first response to these bytes. `closes`: waits until the server closes the connection. */
function exchange(bytes: string, closes: boolean): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(port), '127.0.0.1')
    let text = ''
    const finish = () => {
      const [head = '', body = ''] = text.split('\r\n\r\n')
      const [line = '', ...fields] = head.split('\r\n')
      const headers = Object.fromEntries(fields.map((field) => [field.slice(0, field.indexOf(':')).toLowerCase(), field.slice(field.indexOf(':') + 2)]))
      socket.destroy()
      resolve({ status: Number(line.split(' ')[1]), headers, body: body === '' ? null : JSON.parse(body) })
    }
    socket.on('data', (part) => {
      text += part
      const length = /\r\ncontent-length: (\d+)\r\n/i.exec(text)
      const whole = length && text.length >= text.indexOf('\r\n\r\n') + 4 + Number(length[1])
      if (whole && !closes) finish()
    })
    socket.on('end', finish)
    socket.on('error', reject)
    socket.write(bytes)
  })
}

type Row = [what: string, bytes: string, status: number, code: string, form: 'media' | 'coding' | 'both', headers?: Record<string, string>]
const closed = { connection: 'close' }

const ROWS: Row[] = [
  ['no Host', `GET /v1/models HTTP/1.1\r\n${CODING}\r\n`, 400, 'invalid_request', 'coding', closed],
  ['no Host', `GET /api/v1/usage HTTP/1.1\r\n${MEDIA}\r\n`, 400, 'invalid_request', 'media', closed],
  ['two Hosts', `GET /v1/models HTTP/1.1\r\n${HOST}HOST: y\r\n${CODING}\r\n`, 400, 'invalid_request', 'coding', closed],
  ['two keys', `GET /v1/models HTTP/1.1\r\n${HOST}${CODING}${MEDIA}\r\n`, 400, 'invalid_request', 'coding', closed],
  ['two keys', `GET /api/v1/usage HTTP/1.1\r\n${HOST}${MEDIA}authorization: Bearer x\r\n\r\n`, 400, 'invalid_request', 'media', closed],
  ['an unknown Expect', `POST /v1/responses HTTP/1.1\r\n${HOST}${CODING}${JSON_BODY}Expect: foo\r\nContent-Length: 2\r\n\r\n{}`, 417, 'expectation_failed', 'coding'],
  ['an unknown Expect', `POST /api/v1/generations HTTP/1.1\r\n${HOST}${MEDIA}${JSON_BODY}Expect: foo\r\nContent-Length: 2\r\n\r\n`, 417, 'expectation_failed', 'media'],
  ['an unsupported transfer coding', `POST /v1/responses HTTP/1.1\r\n${HOST}${CODING}${JSON_BODY}Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n`, 415, 'unsupported_media_type', 'coding', closed],
  ['unknown path, without a key', `GET /api/v1/foo HTTP/1.1\r\n${HOST}\r\n`, 401, 'invalid_api_key', 'media', { 'www-authenticate': 'Bearer' }],
  ['unknown path, without a key', `GET /v1/foo HTTP/1.1\r\n${HOST}\r\n`, 401, 'invalid_api_key', 'coding', { 'www-authenticate': 'Bearer' }],
  ['unknown path, with a key of the other product', `GET /api/v1/foo HTTP/1.1\r\n${HOST}${CODING}\r\n`, 403, 'wrong_product', 'media'],
  ['unknown path, with a key of the other product', `GET /v1/foo HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 403, 'wrong_product', 'coding'],
  ['unknown path', `GET /api/v1/foo HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 404, 'not_found', 'media'],
  ['unknown path', `GET /v1/foo HTTP/1.1\r\n${HOST}${CODING}\r\n`, 404, 'not_found', 'coding'],
  ['unknown path, with a body that is not JSON', `POST /v1/foo HTTP/1.1\r\n${HOST}${CODING}${JSON_BODY}Content-Length: 1\r\n\r\n{`, 404, 'not_found', 'coding'],
  ['unknown path, with a body that is not JSON', `POST /api/v1/foo HTTP/1.1\r\n${HOST}${MEDIA}Content-Type: text/plain\r\nContent-Length: 1\r\n\r\n{`, 404, 'not_found', 'media'],
  ['unknown path outside of both APIs', `GET /foo HTTP/1.1\r\n${HOST}\r\n`, 404, 'not_found', 'coding'],
  ['the base path', `GET /api/v1 HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 404, 'not_found', 'media'],
  ['unsupported method, without a key', `DELETE /api/v1/generations HTTP/1.1\r\n${HOST}\r\n`, 401, 'invalid_api_key', 'media'],
  ['unsupported method', `DELETE /api/v1/generations HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 405, 'method_not_allowed', 'media', { allow: 'POST, GET, HEAD' }],
  ['unsupported method', `PUT /v1/chat/completions HTTP/1.1\r\n${HOST}${CODING}\r\n`, 405, 'method_not_allowed', 'coding', { allow: 'POST' }],
  ['a method that no route has', `PURGE /api/v1/usage HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 405, 'method_not_allowed', 'media', { allow: 'GET, HEAD' }],
  ['unsupported method', `GET /mcp HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 405, 'method_not_allowed', 'coding', { allow: 'POST' }],
  ['CONNECT', `CONNECT example.com:443 HTTP/1.1\r\n${HOST}\r\n`, 405, 'method_not_allowed', 'both', closed],
  ['a path with invalid percent-encoding', `GET /api/v1/generations/%zz HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 400, 'invalid_request', 'both'],
  ['a path with invalid percent-encoding', `GET /v1/models/%zz HTTP/1.1\r\n${HOST}${CODING}\r\n`, 400, 'invalid_request', 'both'],
  ['an id that is too long', `GET /api/v1/generations/${'a'.repeat(300)} HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, 404, 'not_found', 'both'],
  ['bytes that are not HTTP', 'BLAH\r\n\r\n', 400, 'invalid_request', 'both', closed],
  ['a TLS handshake', '\x16\x03\x01\x02\x00', 400, 'invalid_request', 'both', closed],
  ['an unsupported HTTP version', `GET / HTTP/9.9\r\n${HOST}\r\n`, 400, 'invalid_request', 'both', closed],
  ['content-length with chunked', `POST /v1/responses HTTP/1.1\r\n${HOST}${CODING}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400, 'invalid_request', 'both', closed],
  ['two content-lengths', `POST /v1/responses HTTP/1.1\r\n${HOST}${CODING}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc`, 400, 'invalid_request', 'both', closed],
  ['a content-length that is not a number', `POST /v1/responses HTTP/1.1\r\n${HOST}${CODING}Content-Length: a\r\n\r\n`, 400, 'invalid_request', 'both', closed],
  ['a folded header', `GET /v1/models HTTP/1.1\r\n${HOST}X-A: b\r\n c\r\n${CODING}\r\n`, 400, 'invalid_request', 'both', closed],
  ['a space before the colon', `POST /v1/responses HTTP/1.1\r\n${HOST}Transfer-Encoding : chunked\r\n${CODING}\r\n`, 400, 'invalid_request', 'both', closed],
  ['a broken chunk', `POST /api/v1/generations HTTP/1.1\r\n${HOST}${MEDIA}${JSON_BODY}Transfer-Encoding: chunked\r\n\r\nzz\r\n`, 400, 'invalid_request', 'both', closed],
  ['a body above the limit, announced with Expect', `POST /v1/responses HTTP/1.1\r\n${HOST}${CODING}${JSON_BODY}Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n`, 413, 'payload_too_large', 'coding', closed],
  ['a body without a key, announced with Expect', `POST /api/v1/generations HTTP/1.1\r\n${HOST}${JSON_BODY}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n`, 401, 'invalid_api_key', 'media', closed],
  ['an unknown path, with a body announced with Expect', `POST /v1/foo HTTP/1.1\r\n${HOST}${CODING}${JSON_BODY}Expect: 100-continue\r\nContent-Length: 999999999\r\n\r\n`, 404, 'not_found', 'coding', closed],
  ['an unsupported method, with a body announced with Expect', `PUT /api/v1/usage HTTP/1.1\r\n${HOST}${MEDIA}${JSON_BODY}Expect: 100-continue\r\nContent-Length: 2\r\n\r\n`, 405, 'method_not_allowed', 'media', closed],
  ['a header that is too large', `GET / HTTP/1.1\r\n${HOST}X: ${'a'.repeat(20_000)}\r\n\r\n`, 431, 'header_too_large', 'both', closed],
]

for (const [what, bytes, status, code, form, headers = {}] of ROWS) {
  t.test(`${what} is a documented error: ${bytes.slice(0, 30).split('\r\n', 1)[0]?.replace(/[^ -~]/g, '?')}`, async (t) => {
    const answer = await exchange(bytes, headers === closed)
    t.equal(answer.status, status)
    t.match(answer.headers, { ...headers, 'x-request-id': /^[0-9a-f-]{36}$/, 'content-type': form === 'coding' ? /^application\/json; charset=utf-8$/ : /^application\/problem\+json/ })
    t.match(answer.body.error, { code, type: String, message: String, param: null })
    const problem = { type: `about:blank#${code}`, title: code.replaceAll('_', ' '), status, detail: answer.body.error['message'], instance: `urn:request:${answer.headers['x-request-id']}` }
    const { error: _error, ...members } = answer.body
    t.same(members, form === 'coding' ? {} : problem)
    t.ok(documented.includes(`| ${status} | \`${code}\` |`), 'it is in docs/errors.md')
  })
}

t.test('HTTP/1.0 needs no Host, and Expect: 100-continue is supported', async (t) => {
  t.equal((await exchange(`GET /v1/models HTTP/1.0\r\n${CODING}\r\n`, false)).status, 200)
  const continued = await new Promise<string>((resolve) => {
    const socket = connect(Number(port), '127.0.0.1', () => socket.write(`POST /v1/chat/completions HTTP/1.1\r\n${HOST}${CODING}${JSON_BODY}Expect: 100-Continue\r\nContent-Length: 2\r\n\r\n`))
    socket.once('data', (part) => {
      socket.destroy()
      resolve(String(part))
    })
  })
  t.match(continued, /^HTTP\/1\.1 100 Continue/)
})

t.test('an unknown path and an unsupported method have the headers of both windows, as every answer to a coding key', async (t) => {
  for (const line of ['POST /v1/foo', 'GET /v1/foo', 'PUT /v1/models']) {
    const { headers } = await exchange(`${line} HTTP/1.1\r\n${HOST}${CODING}\r\n`, false)
    t.match(headers, { 'x-codex-primary-used-percent': /^\d/, 'x-codex-secondary-used-percent': /^\d/, 'x-ratelimit-remaining-tokens': /^\d/ }, line)
  }
  t.notOk('x-ratelimit-remaining-tokens' in (await exchange(`GET /api/v1/foo HTTP/1.1\r\n${HOST}${MEDIA}\r\n`, false)).headers)
})
