/** Clients that download results: those that stop reading are disconnected, and a file and an address have so many at once. */
import { once } from 'node:events'
import { connect, type AddressInfo } from 'node:net'
import fastify from 'fastify'
import t, { type Test } from 'tap'
import errors from '../../plugins/errors/errors.ts'
import { readConfig } from '../../src/config/config.ts'
import type { DownloadLimits } from '../../plugins/files/downloads.ts'
import files from '../../plugins/files/files.ts'
import { openFiles } from '../../src/backends/files/files.ts'
import type { Uploads } from '../../src/tasks/receive-upload.ts'
import { signedFileUrl } from '../../src/domain/signed-urls.ts'
import { DERIVED, START } from '../plugins/gateway.ts'

const BYTES = 32 * 1024 * 1024

/** A listener with the files `a` and `b`, larger than all buffers of a connection. */
async function openDownloadServer(t: Test, limits: Partial<DownloadLimits>) {
  const backend = await openFiles(`disk:${t.testdir()}`)
  const app = fastify()
  app.decorate('files', backend)
  app.decorate('uploads', { limits: { bytes: 1 } } as Uploads)
  app.decorate('derivedKeys', DERIVED)
  app.decorate('config', readConfig({}).config)
  app.decorate('clock', () => START)
  await app.register(errors).register(files, limits)
  await app.listen({ host: '127.0.0.1', port: 0 })
  t.teardown(async () => {
    await app.close()
    await backend.close()
  })
  for (const id of ['a', 'b']) await backend.put(id, Buffer.alloc(BYTES), { contentType: 'video/mp4', expiresAt: START + 3_600_000 })
  const { port } = app.server.address() as AddressInfo
  const link = (id: string) => signedFileUrl(id, START + 3_600_000, DERIVED.links)
  return {
    get: (id: string, init = {}) => fetch(`http://127.0.0.1:${port}${link(id)}`, init),
    /** A client that sends its request and reads only the first bytes of the answer. */
    async stall(id: string) {
      const socket = connect(port, '127.0.0.1')
      t.teardown(() => socket.destroy())
      socket.write(`GET ${link(id)} HTTP/1.1\r\nHost: x\r\n\r\n`)
      const [head] = (await once(socket, 'data')) as [Buffer]
      socket.pause()
      return { socket, status: Number(head.toString('latin1', 9, 12)) }
    },
    connections: () => new Promise<number>((resolve) => app.server.getConnections((_error, count) => resolve(count))),
  }
}

t.test('a client that stops reading is disconnected', async (t) => {
  const server = await openDownloadServer(t, { stalledMs: 100 })
  t.equal((await server.stall('a')).status, 200)
  while ((await server.connections()) > 0) await new Promise((resolve) => setImmediate(resolve))
})

t.test('a file has a number of downloads at once, and one that ends frees its place', async (t) => {
  const server = await openDownloadServer(t, { perFile: 2 })
  const [first] = await Promise.all([server.stall('a'), server.stall('a')])
  const refused = await server.get('a')
  t.match([refused.status, refused.headers.get('retry-after'), await refused.json()], [429, '5', { error: { code: 'concurrency_limit' } }])
  t.equal((await server.get('a', { method: 'HEAD' })).status, 200, 'a request without bytes is not counted')
  t.equal((await (await server.get('b')).arrayBuffer()).byteLength, BYTES, 'another file')
  first.socket.destroy()
  let answer = await server.get('a')
  for (; answer.status === 429; answer = await server.get('a')) await answer.arrayBuffer()
  t.equal((await answer.arrayBuffer()).byteLength, BYTES)
})

t.test('an address has a number of downloads at once, whichever files they are', async (t) => {
  const server = await openDownloadServer(t, { perAddress: 2 })
  await Promise.all([server.stall('a'), server.stall('b')])
  t.equal((await server.get('b')).status, 429)
})
