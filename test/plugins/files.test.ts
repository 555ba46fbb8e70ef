/** Downloads by signed URL: signatures, expiry, range and conditional requests, headers. */
import { once } from 'node:events'
import { request as httpRequest, type IncomingMessage } from 'node:http'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import fastify, { type FastifyInstance } from 'fastify'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors/errors.ts'
import files from '../../plugins/files/files.ts'
import { readConfig } from '../../src/config/config.ts'
import { Unavailable } from '../../src/domain/errors.ts'
import { openFiles, type Files } from '../../src/backends/files/files.ts'
import { deriveKeys, type KeyList } from '../../src/domain/derived-keys.ts'
import type { Uploads } from '../../src/tasks/receive-upload.ts'
import { signedFileUrl, verifySignedUrl } from '../../src/domain/signed-urls.ts'

const NOW = 1_700_000_000_000
const HOUR = 3_600_000
const ID = '01900000-0000-7000-8000-000000000001-1'
const keys: KeyList = [Buffer.alloc(32, 1)]
const BYTES = Buffer.from('0123456789')

type Place = { app: FastifyInstance; backend: Files; link: string; now: { ms: number } }

/** An app with one file in it that expires in an hour. `backend` may put another in place of the folder. */
async function place(t: Test, { contentType = 'video/mp4', links = keys, instead = (backend: Files): Files => backend } = {}): Promise<Place> {
  const backend = await openFiles(`disk:${t.testdir()}`)
  t.teardown(() => backend.close())
  await backend.put(ID, BYTES, { contentType, expiresAt: NOW + HOUR })
  const now = { ms: NOW }
  const app = fastify()
  t.teardown(() => app.close())
  app.decorate('files', instead(backend))
  app.decorate('uploads', { limits: { bytes: 1 } } as Uploads)
  app.decorate('derivedKeys', { ...deriveKeys([Buffer.alloc(32, 1)]), links })
  app.decorate('clock', () => now.ms)
  app.decorate('config', readConfig({}).config)
  await app.register(errors).register(files)
  return { app, backend, now, link: signedFileUrl(ID, NOW + HOUR, keys) }
}

t.test('a signed link returns the bytes with safe, private headers', async (t) => {
  const { app, link } = await place(t)
  const answer = await app.inject(link)
  t.equal(answer.statusCode, 200)
  t.ok(answer.rawPayload.equals(BYTES))
  t.match(answer.headers, {
    'content-type': 'video/mp4',
    'content-length': '10',
    'accept-ranges': 'bytes',
    'cache-control': 'private, max-age=3600, immutable',
    'content-disposition': `inline; filename="${ID}.mp4"`,
    'x-content-type-options': 'nosniff',
    'content-security-policy': /^sandbox allow-same-origin; default-src 'none';/,
    'referrer-policy': 'no-referrer',
    etag: /^"[A-Za-z0-9_-]{32}"$/,
  })
})

t.test('HEAD has the headers of GET without the bytes, and ignores Range', async (t) => {
  const { app, link } = await place(t)
  const { headers } = await app.inject(link)
  const answer = await app.inject({ method: 'HEAD', url: link, headers: { range: 'bytes=0-1' } })
  t.equal(answer.statusCode, 200)
  t.equal(answer.payload, '')
  t.same({ ...answer.headers, date: '' }, { ...headers, date: '' })
})

t.test('a name makes the link a download under that name; one that is more than a word and an id is refused', async (t) => {
  const { app, link } = await place(t)
  t.equal((await app.inject(`${link}&name=background-remove-1f5d0a2c`)).headers['content-disposition'], 'attachment; filename="background-remove-1f5d0a2c.mp4"')
  for (const name of ['', 'a', 'run.exe', '../x-1f5d0a2c', 'a"b-1f5d0a2c', 'a%0d%0ab-1f5d0a2c', 'A-1f5d0a2c', `${'a'.repeat(41)}-1f5d0a2c`]) t.equal((await app.inject(`${link}&name=${name}`)).statusCode, 400, name)
})

t.test('a forged link is 403 invalid_signature, whether the file exists or not', async (t) => {
  const { app, link } = await place(t)
  const [path = '', query = ''] = link.split('?')
  const { exp = '', sig = '' } = Object.fromEntries(new URLSearchParams(query))
  const last = sig.at(-1) === 'A' ? 'B' : 'A'
  const forged = [
    path,
    `${path}?exp=${exp}`,
    `${path}?sig=${sig}`,
    `${path}?exp=${Number(exp) + 1}&sig=${sig}`,
    `${path}?exp=0${exp}&sig=${sig}`,
    `${path}?exp=${exp}&sig=${sig.slice(1)}`,
    `${path}?exp=${exp}&sig=${sig}=`,
    `${path}?exp=${exp}&sig=${sig}%00`,
    `${path}?exp=${exp}&sig=${sig.slice(0, -1)}${last}`,
    `/files/other-1?exp=${exp}&sig=${sig}`,
    `/files/..%2f${ID}?exp=${exp}&sig=${sig}`,
    signedFileUrl(ID, NOW + HOUR, [Buffer.alloc(32, 2)]),
  ]
  for (const url of forged) {
    const answer = await app.inject(url)
    t.equal(answer.statusCode, 403, url)
    t.match(answer.json(), { error: { code: 'invalid_signature' } })
    t.notOk(answer.headers['etag'])
  }
  t.equal((await app.inject(`${link}&exp=1`)).statusCode, 400)
})

t.test('an expired link, an expired file and a removed file are 410 result_expired', async (t) => {
  const { app, backend, link, now } = await place(t)
  const gone = async (url: string): Promise<void> => {
    const answer = await app.inject(url)
    t.equal(answer.statusCode, 410)
    t.match(answer.json(), { error: { code: 'result_expired' } })
  }
  now.ms = NOW + HOUR - 1
  t.equal((await app.inject(link)).statusCode, 200)
  now.ms = NOW + HOUR
  await gone(link)
  await gone(signedFileUrl(ID, NOW + 2 * HOUR, keys))
  now.ms = NOW
  await gone(signedFileUrl('never-there', NOW + HOUR, keys))
  await backend.remove(ID)
  await gone(link)
})

t.test('a link is deterministic, and survives a rotation of the sealing key', async (t) => {
  const rotated: KeyList = [Buffer.alloc(32, 9), ...keys]
  const { app, link } = await place(t, { links: rotated })
  t.equal(signedFileUrl(ID, NOW + HOUR, keys), link)
  t.not(signedFileUrl(ID, NOW + HOUR, rotated), link)
  t.equal((await app.inject(link)).statusCode, 200)
  t.equal((await app.inject(signedFileUrl(ID, NOW + HOUR, rotated))).statusCode, 200)
})

t.test('a signature has one spelling only', async (t) => {
  const [, exp = '', sig = ''] = /exp=(\d+)&sig=(.*)/.exec(signedFileUrl(ID, NOW + HOUR, keys)) ?? []
  t.equal(verifySignedUrl({ id: ID, exp, sig }, keys, NOW), 'good')
  // The last of 43 characters carries four bits: three others decode to the same bytes.
  const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'
  const spellings = [...alphabet].filter((last) => verifySignedUrl({ id: ID, exp, sig: sig.slice(0, -1) + last }, keys, NOW) === 'good')
  t.equal(spellings.length, 1)
  t.equal(verifySignedUrl({ id: ID, exp, sig: Buffer.from(sig, 'base64url').toString('base64') }, keys, NOW), 'forged')
})

t.test('one range is 206 with exactly its bytes', async (t) => {
  const { app, link } = await place(t)
  for (const [range, bytes, contentRange] of [
    ['bytes=0-0', '0', '0-0'],
    ['bytes=2-4', '234', '2-4'],
    ['bytes=7-', '789', '7-9'],
    ['bytes=-3', '789', '7-9'],
    ['bytes=-100', '0123456789', '0-9'],
    ['bytes=8-100', '89', '8-9'],
    ['Bytes= 0-1', '01', '0-1'],
  ] as const) {
    const answer = await app.inject({ url: link, headers: { range } })
    t.equal(answer.statusCode, 206, range)
    t.equal(answer.payload, bytes)
    t.match(answer.headers, { 'content-range': `bytes ${contentRange}/10`, 'content-length': String(bytes.length), 'content-type': 'video/mp4' })
  }
})

t.test('several ranges, invalid ones and other units return the whole file', async (t) => {
  const { app, link } = await place(t)
  for (const range of ['bytes=0-1,3-4', 'bytes=', 'bytes=-', 'bytes=4-2', 'bytes=a-b', 'items=0-1', '0-1', 'bytes=0-1;x']) {
    const answer = await app.inject({ url: link, headers: { range } })
    t.equal(answer.statusCode, 200, range)
    t.equal(answer.payload, '0123456789')
    t.notOk(answer.headers['content-range'])
  }
})

t.test('a range outside the file is 416 with the size', async (t) => {
  const { app, link } = await place(t)
  for (const range of ['bytes=10-', 'bytes=10-20', 'bytes=-0', 'bytes=99999999999999999999-']) {
    const answer = await app.inject({ url: link, headers: { range } })
    t.equal(answer.statusCode, 416, range)
    t.equal(answer.headers['content-range'], 'bytes */10')
    t.match(answer.json(), { error: { code: 'range_not_satisfiable', type: 'invalid_request_error' } })
    t.notOk(answer.headers['cache-control'])
  }
})

t.test('If-None-Match with the entity tag is 304, before any range', async (t) => {
  const { app, link } = await place(t)
  const etag = String((await app.inject(link)).headers['etag'])
  for (const value of [etag, `W/${etag}`, `"other", ${etag}`, '*']) {
    const answer = await app.inject({ url: link, headers: { 'if-none-match': value, range: 'bytes=0-1' } })
    t.equal(answer.statusCode, 304, value)
    t.equal(answer.payload, '')
    t.equal(answer.headers['etag'], etag)
  }
  t.equal((await app.inject({ url: link, headers: { 'if-none-match': '"other"' } })).statusCode, 200)
})

t.test('If-Range with another entity tag returns the whole file', async (t) => {
  const { app, link } = await place(t)
  const etag = String((await app.inject(link)).headers['etag'])
  const status = async (ifRange: string): Promise<number> => (await app.inject({ url: link, headers: { range: 'bytes=0-1', 'if-range': ifRange } })).statusCode
  t.equal(await status(etag), 206)
  for (const other of [`W/${etag}`, '"other"', new Date(NOW).toUTCString()]) t.equal(await status(other), 200, other)
})

t.test('active content is served as an attachment only', async (t) => {
  for (const contentType of ['text/html', 'image/svg+xml', 'application/pdf', 'application/octet-stream']) {
    await t.test(contentType, async (t) => {
      const { app, link } = await place(t, { contentType })
      t.match((await app.inject(link)).headers, { 'content-disposition': `attachment; filename="${ID}"`, 'x-content-type-options': 'nosniff' })
    })
  }
})

t.test('unavailable files are 503 without the error of the backend', async (t) => {
  const instead = (backend: Files): Files => ({ ...backend, stat: () => Promise.reject(new Unavailable('files', new Error('/secret/path is broken'))) })
  const { app, link } = await place(t, { instead })
  const answer = await app.inject(link)
  t.equal(answer.statusCode, 503)
  t.notMatch(answer.payload, /secret/)
})

t.test('a file that is removed between two reads is 410', async (t) => {
  const { app, link } = await place(t, { instead: (backend) => ({ ...backend, get: () => Promise.resolve(null) }) })
  const answer = await app.inject(link)
  t.equal(answer.statusCode, 410)
  t.notOk(answer.headers['content-disposition'], 'an error is not a film')
})

t.test('other methods are 405 with Allow', async (t) => {
  const { app, link } = await place(t)
  const answer = await app.inject({ method: 'DELETE', url: link })
  t.equal(answer.statusCode, 405)
  t.equal(answer.headers['allow'], 'GET, HEAD, PUT')
})

/** A download of an endless file over a real connection; the bytes read from the file are counted. */
async function endless(t: Test): Promise<{ answer: IncomingMessage; read: () => number; closed: Promise<unknown> }> {
  let read = 0
  const stream = new Readable({
    highWaterMark: 64 * 1024,
    read() {
      read += 64 * 1024
      this.push(Buffer.alloc(64 * 1024))
    },
  })
  const closed = once(stream, 'close')
  const { app, link } = await place(t, {
    instead: (backend) => ({
      ...backend,
      async stat(id) {
        const facts = await backend.stat(id)
        return facts && { ...facts, size: 2 ** 40 }
      },
      async get(id) {
        const facts = await backend.stat(id)
        return facts && { ...facts, size: 2 ** 40, stream }
      },
    }),
  })
  await app.listen({ port: 0, host: '127.0.0.1' })
  const { port } = app.server.address() as AddressInfo
  const request = httpRequest({ port, host: '127.0.0.1', path: link }).end()
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  return { answer, read: () => read, closed }
}

t.test('backpressure of a client stops the reading of the file, and a disconnect closes it', async (t) => {
  const { answer, read, closed } = await endless(t)
  // The client does not read: the bytes fill the buffers, and then the flow stops.
  const most = 64 * 1024 * 1024
  let [before, calm] = [-1, 0]
  while (calm < 200 && before < most) {
    calm = read() === before ? calm + 1 : 0
    before = read()
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.ok(before < most, `${before} bytes were read ahead`)
  answer.on('error', () => {}).destroy()
  await closed
  t.pass('the stream of the file is closed')
})
