/** Files backend in S3: the contract, multipart uploads, lost answers, servers that die or refuse, foreign objects, other tools. */
import { createHash, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { renameSync, writeFileSync } from 'node:fs'
import { createServer, request, type IncomingMessage, type RequestListener, type Server } from 'node:http'
import { createRequire } from 'node:module'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openFiles, type Files } from '../../../src/backends/files/files.ts'
import { readAddress } from '../../../src/backends/files/s3/s3-url.ts'
import { filesPromises } from '../../contracts/files.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { ownS3, s3 } from '../../servers/s3.ts'
import { makeBucket } from './bucket.ts'
import { haltingBody, until } from './halting-body.ts'

const facts = { contentType: 'video/mp4', expiresAt: 1_800_000_000_000 }
const HOUR = 3600 * 1000
const MB = 1_000_000
const credentials = { accessKeyId: 'id', secretAccessKey: 'secret' }

/** The clock by which undici measures its time limits. The first tick begins those of which nothing has passed yet, and takes a second. */
const { tick } = createRequire(import.meta.url)('undici/lib/util/timers.js') as { tick(ms: number): void }
function pass(ms: number): void {
  tick(1000)
  tick(ms)
}

const sizeOf = async (files: Files, id: string) => (await (await files.get(id))!.stream.toArray()).reduce((sum, chunk: Buffer) => sum + chunk.length, 0)

async function listening(t: Test, server: Server): Promise<string> {
  await once(server.listen(0, '127.0.0.1'), 'listening')
  t.teardown(() => void server.closeAllConnections())
  t.teardown(() => void server.close())
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}

type Meddling = (asked: IncomingMessage, forward: () => Promise<IncomingMessage>, answer: Parameters<RequestListener>[1]) => Promise<'done' | 'pass'>

/** A faulty proxy in front of S3. It keeps the Host header, which is signed. */
function meddler(t: Test, target: string, meddle: Meddling): Promise<string> {
  return listening(
    t,
    createServer(async (asked, answer) => {
      const forward = async () => {
        const passed = request(`${target}${asked.url}`, { method: asked.method, headers: asked.headers })
        asked.pipe(passed)
        const [said] = (await once(passed, 'response')) as [IncomingMessage]
        return said
      }
      if ((await meddle(asked, forward, answer)) === 'done') return
      const said = await forward()
      answer.writeHead(said.statusCode ?? 500, said.headers)
      said.pipe(answer)
    }),
  )
}

t.test('FILES_URL determines the URL of the bucket', async (t) => {
  const aws = readAddress('s3://results-1?region=eu-central-1')
  t.match(aws, { bucketUrl: 'https://results-1.s3.eu-central-1.amazonaws.com', base: 'https://results-1.s3.eu-central-1.amazonaws.com/', prefix: '', region: 'eu-central-1', credentialFiles: null })
  const own = readAddress('s3://results-1/media/v1/?endpoint=http://minio:9000&accessKeyIdFile=/run/id&secretAccessKeyFile=/run/key')
  t.match(own, { bucketUrl: 'http://minio:9000/results-1', base: 'http://minio:9000/results-1/media/v1/', prefix: 'media/v1/', region: 'us-east-1' })
  t.same(own.credentialFiles, { accessKeyId: '/run/id', secretAccessKey: '/run/key', sessionToken: null })
  t.equal(readAddress('s3://results-1?endpoint=https://store.example/s3/&pathStyle=true').bucketUrl, 'https://store.example/s3/results-1')
  t.equal(readAddress('s3://results-1?endpoint=https://store.example&pathStyle=false').bucketUrl, 'https://results-1.store.example')
})

t.test('an invalid FILES_URL is refused with an error', async (t) => {
  const refused: Record<string, RegExp> = {
    's3:': /not a URL|names the bucket/,
    's3://': /not a URL|names the bucket/,
    's3://ab': /names the bucket "ab"/,
    's3://UPPER': /names the bucket/,
    's3://id:secret@results-1': /holds credentials: name their files/,
    's3://results-1?endpont=http://x': /unknown parameter "endpont"/,
    's3://results-1?endpoint=minio:9000': /endpoint "minio:9000"/,
    's3://results-1?endpoint=ftp://minio': /endpoint "ftp:/,
    's3://results-1?endpoint=http://x&pathStyle=yes': /pathStyle=yes/,
    's3://results-1/a%2fb': /prefix/,
    's3://results-1/.hidden': /prefix/,
    's3://results-1?accessKeyIdFile=/run/id': /belong together/,
  }
  for (const [address, sentence] of Object.entries(refused)) await t.rejects(openFiles(address, { storeUrl: '', credentials }), { name: 'Error', message: sentence }, address)
  await t.rejects(openFiles('s3://results-1', { storeUrl: '' }), { name: 'Error', message: /without credentials: name their files .* AWS_ACCESS_KEY_ID/ })
  await t.rejects(openFiles('s3://results-1?accessKeyIdFile=/nowhere/id&secretAccessKeyFile=/nowhere/key'), { name: 'Error', message: /\/nowhere\/id .* cannot be read \(ENOENT\)/ })
})

t.test('an unreachable server is Unavailable, and one that is not S3 is reported to the operator', async (t) => {
  await t.rejects(openFiles('s3://results-1?endpoint=http://127.0.0.1:1', { storeUrl: '', credentials }), Unavailable)
  const web = await listening(t, createServer((_, answer) => void answer.end('<html>It works!</html>')))
  await t.rejects(openFiles(`s3://results-1?endpoint=${web}`, { storeUrl: '', credentials }), { name: 'Error', message: /does not answer as an S3 server does/ })
})

t.test('a permanent refusal of S3 is reported to the operator', async (t) => {
  const said: Record<string, [status: number, sentence: RegExp, more?: string]> = {
    InvalidAccessKeyId: [403, /does not accept the access key \(InvalidAccessKeyId\)/],
    ExpiredToken: [400, /does not accept the access key \(ExpiredToken\)/],
    RequestTimeTooSkewed: [403, /the clock of this machine/],
    AuthorizationHeaderMalformed: [400, /set region=eu-west-1\./, '<Region>eu-west-1</Region>'],
    PermanentRedirect: [301, /is not in the region us-east-1/],
    AccessDenied: [403, /may not list or write the bucket results-1 .* s3:ListBucket, /],
    InvalidArgument: [400, /refuses the request \(400 InvalidArgument: no\)/],
  }
  let code = ''
  let may: (asked: IncomingMessage) => boolean = () => false
  const server = await listening(
    t,
    createServer((asked, answer) => {
      if (may(asked)) return void answer.end('<ListBucketResult></ListBucketResult>')
      const [status, , more = ''] = said[code]!
      answer.writeHead(status).end(`<?xml version="1.0"?><Error><Code>${code}</Code><Message>no</Message>${more}</Error>`)
    }),
  )
  const open = () => openFiles(`s3://results-1?endpoint=${server}`, { storeUrl: '', credentials })
  for (code of Object.keys(said)) await t.rejects(open(), { name: 'Error', message: said[code]![1] }, code)
  code = 'AccessDenied'
  may = (asked) => asked.method === 'GET'
  await t.rejects(open(), { name: 'Error', message: /may not list or write .* s3:PutObject/ }, 'a key with read access only')
})

t.test('an upload on a slow line is given up only when nothing more is sent', async (t) => {
  const server = await listening(
    t,
    createServer(async (asked, answer) => {
      const isSlow = asked.url?.includes('/files/')
      // The first bytes are here, and later all of them: together after more than the time for an answer, 10 s.
      if (isSlow) pass(4500)
      await once(asked.resume(), 'end')
      if (isSlow) pass(4500)
      answer.end('<ListBucketResult></ListBucketResult>')
    }),
  )
  const files = await openFiles(`s3://results-1?endpoint=${server}`, { storeUrl: '', credentials })
  t.teardown(() => files.close())
  t.equal((await files.put('slow-1', Buffer.alloc(8 * MB), facts)).size, 8 * MB)
})

t.test('on a shared server', async (t) => {
  const server = await s3(t)
  if (!server) return

  await t.test('the contract', async (t) => {
    const bucket = await makeBucket(t, server)
    await runContract(t, filesPromises, async () => {
      const prefix = `${randomUUID()}/deeper`
      return { files: await bucket.open(prefix), another: () => bucket.open(prefix) }
    })
  })

  await t.test('other tools can read a file as an unmodified object', async (t) => {
    const bucket = await makeBucket(t, server)
    const files = await bucket.open('media')
    const put = await files.put('a-1', Buffer.from('the bytes'), facts)
    const seen = await bucket.request('/media/files/a-1')
    t.equal(await seen.text(), 'the bytes')
    t.match(Object.fromEntries(seen.headers), { 'content-type': 'video/mp4', 'x-amz-meta-expires-at': '1800000000000', etag: `"${put.etag}"` })
    t.same(await bucket.keys(), ['media/expires/0001800000000000-a-1', 'media/files/a-1', 'media/write-check'])
  })

  await t.test('foreign objects are not files', async (t) => {
    const bucket = await makeBucket(t, server)
    const files = await bucket.open()
    const foreign = ['expires/!', 'expires/0000000000000001', 'expires/0000000000000002-A', 'expires/0000000000000003-a&b', 'expires/zz', 'files/Not An Id', 'files/foreign-1', 'other/a-1']
    for (const key of foreign) await bucket.request(`/${encodeURI(key)}`, { method: 'PUT', body: 'notes of somebody' })
    t.equal(await files.stat('foreign-1'), null)
    t.equal(await files.get('foreign-1'), null)
    t.same(await files.list('', 1), ['foreign-1'], 'list returns a candidate')
    await bucket.request('/expires/0000000000000004-foreign-1', { method: 'PUT', body: '' })
    await files.put('due-1', Buffer.from('x'), { ...facts, expiresAt: 5 })
    t.equal(await files.sweep(facts.expiresAt, 1), 1, 'the expiry sweep ignores it')
    t.same(await bucket.keys(), [...foreign, 'write-check'])
  })

  await t.test('an open stream stays complete while its file is removed or replaced, beyond the socket buffers', async (t) => {
    const files = await (await makeBucket(t, server)).open()
    const hash = async (chunks: AsyncIterable<Buffer>) => {
      const sum = createHash('sha256')
      for await (const chunk of chunks) sum.update(chunk)
      return sum.digest('hex')
    }
    const bytes = Buffer.alloc(40 * MB, 'some video')
    const expected = createHash('sha256').update(bytes).digest('hex')
    await files.put('a-1', bytes, facts)
    const [first, second] = [await files.get('a-1'), await files.get('a-1')]
    await files.put('a-1', Buffer.alloc(40 * MB, 'other'), facts)
    t.equal(await hash(first!.stream as AsyncIterable<Buffer>), expected, 'replaced')
    await files.remove('a-1')
    t.equal(await hash(second!.stream as AsyncIterable<Buffer>), expected, 'removed')
  })

  await t.test('uploads of failed bodies are aborted at once, those of crashed writers after a day, and those in progress never', async (t) => {
    const bucket = await makeBucket(t, server)
    const [crashed, living, another] = [await bucket.open(), await bucket.open(), await bucket.open()]
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(10 * MB)
      throw new TypeError('the provider went away')
    }
    await t.rejects(living.put('a-1', broken(), facts), new TypeError('the provider went away'))
    t.same(await bucket.uploads(), [])
    const [lost, kept] = [haltingBody(10 * MB), haltingBody(10 * MB)]
    const failed = t.rejects(crashed.put('lost-1', lost.body, facts), Unavailable)
    const written = living.put('kept-1', kept.body, facts)
    await until(async () => (await bucket.uploads()).length === 2)
    await Promise.all([lost.reached, kept.reached])
    await crashed.close()
    lost.goOn()
    await failed
    await another.sweep(Date.now() + 23 * HOUR, 10)
    t.same(await bucket.uploads(), ['files/kept-1', 'files/lost-1'])
    await living.sweep(Date.now() + 25 * HOUR, 10)
    t.same(await bucket.uploads(), ['files/kept-1'])
    kept.goOn()
    t.equal((await written).size, 20 * MB)
    t.same(await living.list('', 10), ['kept-1'])
  })

  await t.test('expiry entries are removed with their files, also after a removal or a rewrite', async (t) => {
    const bucket = await makeBucket(t, server)
    const files = await bucket.open()
    for (let n = 0; n < 40; n++) await files.put(`file-${n}`, Buffer.from('x'), { ...facts, expiresAt: 1000 + n })
    await files.remove('file-0')
    await files.put('file-1', Buffer.from('x'), { ...facts, expiresAt: 5000 })
    t.equal(await files.sweep(1019, 30), 18)
    t.equal((await bucket.keys('expires/')).length, 21)
    t.equal(await files.sweep(5000, 5), 5, 'at most the limit')
    t.equal(await files.sweep(5000, 30), 16)
    t.same(await bucket.keys('expires/'), [])
  })

  await t.test('credentials are read from their files, which may change while the program runs', async (t) => {
    const bucket = await makeBucket(t, server)
    const folder = t.testdir({ id: `${server.accessKeyId}\n`, key: `${server.secretAccessKey}\n` })
    const address = `${bucket.address()}&accessKeyIdFile=${join(folder, 'id')}&secretAccessKeyFile=${join(folder, 'key')}`
    const files = await openFiles(address)
    t.teardown(() => files.close())
    const write = (secret: string) => {
      writeFileSync(join(folder, 'new'), secret)
      renameSync(join(folder, 'new'), join(folder, 'key'))
    }
    await files.put('a-1', Buffer.from('x'), facts)
    write('wrong')
    await t.rejects(files.put('a-2', Buffer.from('x'), facts), { name: 'Unavailable', cause: { message: /403 SignatureDoesNotMatch/ } })
    await t.rejects(files.stat('a-1'), Unavailable, 'a refusal does not mean absence')
    await t.rejects(openFiles(address), { name: 'Error', message: /does not accept the access key \(SignatureDoesNotMatch\)/ })
    write(server.secretAccessKey)
    t.equal((await files.stat('a-1'))?.size, 1)
  })

  await t.test('an unknown access key and a missing bucket are reported to the operator', async (t) => {
    const bucket = await makeBucket(t, server)
    const stranger = { storeUrl: '', credentials: { accessKeyId: 'nobody', secretAccessKey: 'x' } }
    await t.rejects(openFiles(bucket.address(), stranger), { name: 'Error', message: /does not accept the access key \(/ })
    const missing = bucket.address().replace(bucket.name, `none-${randomUUID()}`)
    await t.rejects(openFiles(missing, { storeUrl: '', credentials: server }), { name: 'Error', message: /names the bucket none-.*: create it/ })
  })

  await t.test('a removed bucket is Unavailable, not empty', async (t) => {
    const bucket = await makeBucket(t, server)
    const files = await bucket.open()
    for (const key of await bucket.keys()) await bucket.request(`/${key}`, { method: 'DELETE' })
    t.equal((await bucket.request('', { method: 'DELETE' })).status, 204)
    const calls: (() => Promise<unknown>)[] = [() => files.stat('a-1'), () => files.get('a-1'), () => files.list('', 1), () => files.sweep(0, 1), () => files.remove('a-1')]
    for (const call of calls) await t.rejects(call, Unavailable)
    await bucket.request('', { method: 'PUT' })
  })

  await t.test('a request to a busy server is retried, and a read resolves a lost answer', async (t) => {
    const bucket = await makeBucket(t, server)
    const met = new Map<string, number>()
    const endpoint = await meddler(t, server.url, async (asked, forward, answer) => {
      const kind = `${asked.method} ${/[?&]uploadId=/.test(asked.url ?? '') ? 'upload' : ''}`
      met.set(kind, (met.get(kind) ?? 0) + 1)
      if (met.get(kind)! > 1) return 'pass'
      if (kind !== 'POST upload') {
        asked.resume()
        answer.writeHead(503).end('<Error><Code>SlowDown</Code><Message>Reduce your request rate</Message></Error>')
        return 'done'
      }
      // The upload is completed, and its answer is lost.
      await once((await forward()).resume(), 'end')
      asked.socket.destroy()
      return 'done'
    })
    const files = await bucket.open('', endpoint)
    const put = await files.put('a-1', Buffer.alloc(20 * MB, 1), facts)
    t.same(await files.stat('a-1'), put)
    t.equal(await sizeOf(files, 'a-1'), 20 * MB)
    t.same([...met.keys()].sort(), ['GET ', 'HEAD ', 'POST ', 'POST upload', 'PUT ', 'PUT upload'])
  })

  await t.test('a short outage is retried', async (t) => {
    const bucket = await makeBucket(t, server)
    let left = 2
    const endpoint = await meddler(t, server.url, async (asked) => {
      if (asked.method !== 'PUT' || !asked.url?.includes('uploadId') || left === 0) return 'pass'
      left--
      asked.socket.destroy()
      return 'done'
    })
    const files = await bucket.open('', endpoint)
    t.equal((await files.put('patient-1', Buffer.alloc(20 * MB), facts)).size, 20 * MB)
    t.equal(left, 0)
  })

  await t.test('a truncated answer is an error of the stream, never a short file', async (t) => {
    const bucket = await makeBucket(t, server)
    const endpoint = await meddler(t, server.url, async (asked, forward, answer) => {
      if (asked.method !== 'GET' || !asked.url?.includes('/files/')) return 'pass'
      const said = await forward()
      answer.writeHead(said.statusCode ?? 500, said.headers)
      answer.write(Buffer.alloc(1000))
      said.destroy()
      await setImmediate()
      asked.socket.destroy()
      return 'done'
    })
    const files = await bucket.open('', endpoint)
    await files.put('a-1', Buffer.alloc(MB), facts)
    const reading = files.get('a-1').then((file) => file!.stream.toArray())
    await t.rejects(reading, Unavailable)
  })
})

t.test('a server killed during a put leaves no visible file, and the same handle works again after its restart', async (t) => {
  const server = await ownS3(t)
  if (!server) return
  const bucket = await makeBucket(t, server)
  const files = await bucket.open()
  await files.put('before-1', Buffer.alloc(20 * MB), facts)
  for (const [id, size] of [['short-1', 3 * MB], ['long-1', 10 * MB]] as const) {
    const { body, reached, goOn } = haltingBody(size)
    const put = t.rejects(files.put(id, body, facts), Unavailable)
    await reached
    const reading = (await files.get('before-1'))!.stream
    await server.kill()
    goOn()
    await put
    await t.rejects(reading.toArray(), Unavailable)
    await t.rejects(files.stat('before-1'), Unavailable)
    await server.start()
    t.equal(await files.stat(id), null)
    t.same(await files.list('', 10), ['before-1'])
  }
  t.equal(await sizeOf(files, 'before-1'), 20 * MB)

  await server.freeze()
  // The server may still answer requests that arrive before the signal. The test ends only if the wait for a silent server is bounded.
  await until(() => files.stat('before-1').then(() => false, (error: unknown) => error instanceof Unavailable))
  server.thaw()
  t.equal((await files.stat('before-1'))?.size, 20 * MB)
})
