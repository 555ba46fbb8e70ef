/** Uploads: files of a client or a person as sources of operations, behind a key, a session or a signed address. */
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { request } from 'node:http'
import type { AddressInfo } from 'node:net'
import t, { type Test } from 'tap'
import { uploadOwner } from '../../src/tasks/receive-upload.ts'
import { openFiles, type Files } from '../../src/backends/files/files.ts'
import { makeBucket } from '../backends/files/bucket.ts'
import { png } from '../backends/engines/media-samples.ts'
import { pngBomb } from '../backends/engines/pictures.ts'
import { s3 } from '../servers/s3.ts'
import { applyPlan, openRoom, type Room, type Sent } from './dashboard-room.ts'
import { MEDIA, START } from './gateway.ts'

const PICTURE = png(64, 48)
const SESSION = { 'x-session': 'one', 'x-tenant': 'acme', 'content-type': 'image/png' }
const upload = (room: Room, body: Buffer = PICTURE, more: Partial<Sent> = {}) => room.send({ method: 'POST', path: '/media/uploads', body, headers: { 'content-type': 'image/png', ...more.headers }, ...more })
const kept = async ({ app }: Room): Promise<string[]> => (await app.files.list('upload-', 100)).filter((id) => id.startsWith('upload-'))

/** The files backends that are reachable: the folder always, a bucket where its server is installed. */
async function backends(t: Test): Promise<{ name: string; open: () => Promise<Files> }[]> {
  const server = await s3(t)
  const bucket = server && (await makeBucket(t, server))
  const folder = `${t.testdirName}-uploads`
  t.teardown(() => rm(folder, { recursive: true, force: true }))
  return [{ name: 'a folder', open: async () => openFiles(`disk:${folder}`) }, ...(bucket ? [{ name: 'a bucket', open: () => bucket.open() }] : [])]
}

t.test('an upload becomes the source of an operation, without network', async (t) => {
  for (const { name, open } of await backends(t)) {
    const room = await openRoom(t, { files: await open() })
    const answer = await upload(room)
    t.equal(answer.statusCode, 201, name)
    const { media_url: link, ...facts } = answer.json()
    t.match(facts, { object: 'upload', content_type: 'image/png', bytes: PICTURE.length, width: 64, height: 48, duration_ms: null, expires_at: '2026-06-08T00:00:00.000Z' })
    const { pathname, search } = new URL(link)
    const read = await room.app.inject(`${pathname}${search}`)
    t.match([read.statusCode, read.headers['content-type']], [200, 'image/png'])
    t.same(read.rawPayload, PICTURE)
    const made = await room.send({ method: 'POST', path: '/media/operations', body: { operation: 'upscale', media_url: link } })
    t.equal(made.statusCode, 202)
    t.match(await room.until(made.json().id, ({ status }) => status !== 'queued' && status !== 'processing', 'operations'), { status: 'completed' })
    t.equal((await kept(room)).length, 1, 'it stays for the next operation')
    room.time.now = Date.parse(facts.expires_at)
    t.equal((await room.app.inject(`${pathname}${search}`)).statusCode, 410)
    await room.app.files.sweep(room.time.now, 10)
    t.same(await kept(room), [])
  }
})

t.test('the content decides the type of a file; one that is no media, damaged or too large in pixels is refused and leaves nothing', async (t) => {
  const room = await openRoom(t, { loops: false })
  for (const type of ['text/html', '', 'x']) t.match((await upload(room, PICTURE, { headers: { 'content-type': type } })).json(), { content_type: 'image/png' }, type)
  const before = await kept(room)
  for (const [body, status, code] of [
    [Buffer.from('<html><script>alert(1)</script>'), 415, 'unsupported_media_type'],
    [Buffer.from('<svg xmlns="http://www.w3.org/2000/svg"/>'), 415, 'unsupported_media_type'],
    [Buffer.from('%PDF-1.7'), 415, 'unsupported_media_type'],
    [pngBomb(50_000, 50_000), 413, 'payload_too_large'],
  ] as const) {
    const answer = await upload(room, body)
    t.match([answer.statusCode, answer.json()], [status, { status, error: { code } }])
    t.match(answer.headers['content-type'], 'application/problem+json')
  }
  t.equal((await upload(room, PICTURE, { headers: { 'content-encoding': 'gzip' } })).statusCode, 415)
  t.same(await kept(room), before)
})

t.test('an upload has a limit of bytes, and declares its length before its body', async (t) => {
  const room = await openRoom(t, { loops: false, uploadLimits: { bytes: PICTURE.length } })
  t.equal((await upload(room)).statusCode, 201)
  t.match((await upload(room, Buffer.concat([PICTURE, Buffer.from('x')]))).json(), { error: { code: 'payload_too_large' } })
  const { port } = (await listen(room)).address() as AddressInfo
  for (const [framing, body] of [[{ 'transfer-encoding': 'chunked' }, PICTURE], [{ 'content-length': 0 }, '']] as const) {
    const sent = request({ port, agent: false, method: 'POST', path: '/dashboard/api/media/uploads', headers: { ...SESSION, ...framing } })
    sent.end(body)
    const [answer] = await once(sent, 'response')
    t.equal(answer.statusCode, 400)
    answer.resume()
    await once(answer, 'close')
  }
})

t.test('an upload that is broken off leaves nothing', async (t) => {
  for (const { name, open } of await backends(t)) {
    const files = await open()
    const room = await openRoom(t, { files, loops: false, uploadLimits: { arriving: 1 } })
    const begun = Promise.withResolvers<{ stored: Promise<unknown> }>()
    const { put } = files
    files.put = (...given) => {
      files.put = put
      const stored = put(...given)
      begun.resolve({ stored: Promise.allSettled([stored]) })
      return stored
    }
    const { port } = (await listen(room)).address() as AddressInfo
    const sending = request({ port, method: 'POST', path: '/dashboard/api/media/uploads', agent: false, headers: { ...SESSION, 'content-length': 5_000_000 } })
    sending.on('error', () => {})
    sending.write(Buffer.concat([PICTURE, Buffer.alloc(1_000_000)]))
    const outcome = await begun.promise
    t.equal((await upload(room)).statusCode, 429, 'its place is taken')
    sending.destroy()
    t.match(await outcome.stored, [{ status: 'rejected' }])
    t.same(await kept(room), [], name)
    t.notOk(room.logged.some(({ level }) => Number(level) >= 50), 'a client that leaves is no error')
    t.equal((await upload(room)).statusCode, 201, 'its place is free again')
  }
})

t.test('an upload slower than the minimum rate gives its place back, by session, key or signed address', async (t) => {
  for (const { name, open } of await backends(t)) {
    const room = await openRoom(t, { files: await open(), loops: false, uploadLimits: { arriving: 1 }, uploadRate: { windowMs: 200, bytes: 1000 } })
    const { port } = (await listen(room)).address() as AddressInfo
    const { pathname, search } = new URL(room.app.uploads.link(uploadOwner('acme')).url)
    for (const [method, path, headers] of [['POST', '/dashboard/api/media/uploads', SESSION], ['POST', '/api/v1/uploads', { authorization: `Bearer ${room.raw}` }], ['PUT', `${pathname}${search}`, {}]] as const) {
      const slow = request({ port, method, path, agent: false, headers: { ...headers, 'content-length': 5_000_000 } })
      slow.on('error', () => {})
      slow.write(Buffer.concat([PICTURE, Buffer.alloc(100_000)]))
      const trickle = setInterval(() => slow.write('x'), 20)
      const [answer] = await once(slow, 'response')
      clearInterval(trickle)
      t.match([answer.statusCode, JSON.parse(String(await answer.reduce((all: string, part: Buffer) => all + part, '')))], [408, { error: { code: 'request_timeout' } }], `${name} ${path}`)
      slow.destroy()
      t.same(await kept(room), [], name)
      t.equal((await upload(room)).statusCode, 201, 'its place is free')
      for (const id of await kept(room)) await room.app.files.remove(id)
    }
  }
})

t.test('time that the files need is not held against the client', async (t) => {
  const files = await (await backends(t))[0]!.open()
  const { put } = files
  files.put = (id, parts, facts) => put(id, slowly(parts as AsyncIterable<Uint8Array>), facts)
  const room = await openRoom(t, { files, loops: false, uploadRate: { windowMs: 100, bytes: 1_000_000 } })
  const { port } = (await listen(room)).address() as AddressInfo
  const sent = request({ port, agent: false, method: 'POST', path: '/dashboard/api/media/uploads', headers: { ...SESSION, 'content-length': PICTURE.length + 3_000_000 } })
  sent.end(Buffer.concat([PICTURE, Buffer.alloc(3_000_000)]))
  const [answer] = await once(sent, 'response')
  t.equal(answer.statusCode, 201)
  answer.resume()
  await once(answer, 'close')
})

async function* slowly(parts: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let isFirst = true
  for await (const part of parts) {
    if (isFirst) await new Promise((resolve) => setTimeout(resolve, 300))
    isFirst = false
    yield part
  }
}

t.test('a tenant has limits of uploads and bytes at a time, which other tenants do not share', async (t) => {
  const room = await openRoom(t, { loops: false, uploadLimits: { perTenant: { count: 2, bytes: 10_000 } } })
  await upload(room)
  await upload(room)
  const refused = await upload(room)
  t.match([refused.statusCode, refused.json(), refused.headers['retry-after']], [429, { error: { code: 'upload_limit' } }, String(7 * 86_400)])
  room.time.now = START + 7 * 86_400_000 + 1000
  t.equal((await upload(room)).statusCode, 201, 'expired ones no longer count, swept or not')
  const large = await openRoom(t, { loops: false, uploadLimits: { perTenant: { count: 10, bytes: PICTURE.length * 2 } } })
  await upload(large)
  await upload(large)
  t.equal((await upload(large)).statusCode, 429)
})

t.test('what has arrived counts no longer as arriving, also while another upload arrives', async (t) => {
  const slowBytes = 100_000
  const room = await openRoom(t, { loops: false, uploadLimits: { arriving: 2, perTenant: { count: 10, bytes: slowBytes + 2 * PICTURE.length } } })
  const server = await listen(room)
  const { port } = server.address() as AddressInfo
  const slow = request({ port, method: 'POST', path: '/dashboard/api/media/uploads', agent: false, headers: { ...SESSION, 'content-length': slowBytes } })
  slow.on('error', () => {}).write(PICTURE)
  await once(server, 'request')
  for (let n = 0; n < 5; n++) {
    t.equal((await upload(room)).statusCode, 201, `upload ${n + 1}`)
    for (const id of await kept(room)) await room.app.files.remove(id)
  }
  slow.destroy()
})

t.test('a plan that is not active takes no uploads', async (t) => {
  const room = await openRoom(t, { loops: false })
  await room.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  t.match((await upload(room)).json(), { error: { code: 'plan_inactive' } })
  t.same(await kept(room), [])
})

t.test('a key uploads and deletes files of its tenant, and no other', async (t) => {
  const room = await openRoom(t)
  const { app, raw } = room
  const send = (key: string, body: Buffer | null, id = '') => app.inject({ method: body ? 'POST' : 'DELETE', url: `/api/v1/uploads${id}`, headers: { authorization: `Bearer ${key}`, 'content-type': body ? 'image/png' : 'application/json' }, ...(body ? { payload: body } : {}) })
  const answer = await send(raw, PICTURE)
  t.match([answer.statusCode, answer.json()], [201, { object: 'upload', content_type: 'image/png', width: 64 }])
  const { id, media_url } = answer.json()
  const made = await room.operate({ operation: 'upscale', media_url })
  t.match(await room.until(made.json().id, ({ status }) => status !== 'queued' && status !== 'processing', 'operations'), { status: 'completed' })
  const { terms } = (await room.store.subscription(room.subscription))!
  await applyPlan(room, 'globex/studio', 'Media', terms)
  const other = await room.key('globex/studio', { tenant: 'globex' })
  t.match((await send(other.raw, null, `/${id}`)).statusCode, 404, 'another tenant cannot see it')
  t.match((await send(raw, null, `/${String(made.json().id)}`)).statusCode, 404, 'a result is no upload')
  t.equal((await send(raw, null, `/${id}`)).statusCode, 204)
  t.same(await kept(room), [])
  t.match((await send(raw, null, `/${id}`)).statusCode, 404)
  t.equal((await app.inject({ method: 'POST', url: '/api/v1/uploads', headers: { 'content-type': 'image/png' }, payload: PICTURE })).statusCode, 401)
  await room.plan('studio', { product: 'Media', media: MEDIA, state: 'Suspended' }, 2)
  t.match((await send(raw, PICTURE)).json(), { error: { code: 'plan_inactive' } })
  t.same(await kept(room), [])
})

t.test('a signed address takes uploads without a key until it expires, and nothing else', async (t) => {
  const room = await openRoom(t, { loops: false })
  const { app } = room
  const owner = uploadOwner('acme')
  const { url, expiresAt } = app.uploads.link(owner)
  t.equal(expiresAt, START + 15 * 60_000)
  const put = (address: string, body = PICTURE) => app.inject({ method: 'PUT', url: new URL(address).pathname + new URL(address).search, payload: body })
  const answer = await put(url)
  t.match([answer.statusCode, answer.json()], [201, { object: 'upload', width: 64 }])
  t.equal((await kept(room)).length, 1)
  t.match((await put(url, Buffer.from('<html>'))).statusCode, 415)
  t.match((await put(url.replace(owner, uploadOwner('globex')))).json(), { error: { code: 'invalid_signature' } })
  t.match((await put(answer.json().media_url)).statusCode, 405, 'the address of a file takes none')
  t.equal((await app.inject(new URL(url).pathname + new URL(url).search)).statusCode, 410, 'an address for uploads is no file')
  room.time.now = expiresAt
  t.match((await put(url)).json(), { error: { code: 'result_expired' } })
  t.equal((await kept(room)).length, 1)
})

async function listen({ app }: Room): Promise<Room['app']['server']> {
  await app.listen({ port: 0, host: '127.0.0.1' })
  return app.server
}
