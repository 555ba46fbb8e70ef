/** Contract of the files backends. A backend starts empty; `another` is a second handle on it, like that of another process. */
import { createHash } from 'node:crypto'
import { setImmediate } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { Unavailable } from '../../src/domain/errors.ts'
import type { Files } from '../../src/backends/files/files.ts'
import type { Promises } from './run-contract.ts'

export type FilesPlace = { files: Files; another(): Promise<Files> }

const facts = { contentType: 'image/png', expiresAt: 1_800_000_000_000 }
const ID = '01900000-0000-7000-8000-000000000001-1'

async function contentOf(files: Files, id: string, range?: { start: number; end: number }): Promise<string | null> {
  const file = await files.get(id, range)
  return file && Buffer.concat(await file.stream.toArray()).toString('latin1')
}

/** A body in many pieces, of `size` bytes in all. */
async function* pieces(size: number, piece = 64 * 1024): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < size; at += piece) yield Buffer.alloc(Math.min(piece, size - at), at / piece)
}

const MB = 1_000_000
setFlagsFromString('--expose-gc')
const collectGarbage = runInNewContext('gc') as () => void

/** Bytes of buffers that are still referenced. */
function buffered(): number {
  collectGarbage()
  return process.memoryUsage().arrayBuffers
}

export const filesPromises: Promises<FilesPlace> = {
  'a written file is readable with its metadata by every handle': async (t, { files, another }) => {
    const put = await files.put(ID, Buffer.from('hello'), facts)
    t.match(put, { id: ID, size: 5, ...facts, etag: /^[A-Za-z0-9_-]{16,}$/ })
    for (const handle of [files, await another()]) {
      t.same(await handle.stat(ID), put)
      const got = await handle.get(ID)
      t.match(got, put)
      t.equal(await got?.stream.toArray().then((all) => Buffer.concat(all).toString()), 'hello')
    }
  },
  'an unknown id is null, whatever the text': async (t, { files }) => {
    for (const id of [ID, '', '.', '..', '../outside', 'a/b', 'A', `${ID}\0`, 'x'.repeat(101), '.incoming']) {
      t.equal(await files.stat(id), null)
      t.equal(await files.get(id), null)
      await t.resolves(files.remove(id))
    }
  },
  'an invalid id cannot be written': async (t, { files }) => {
    for (const id of ['', '.', '..', '../outside', 'a/b', 'A', 'a b', 'a\0', '-a', 'x'.repeat(101)]) await t.rejects(files.put(id, Buffer.of(1), facts), RangeError)
    t.same(await files.list('', 10), [])
  },
  'an empty file is a file': async (t, { files }) => {
    t.equal((await files.put(ID, new Uint8Array(), facts)).size, 0)
    t.equal(await contentOf(files, ID), '')
  },
  'a body is streamed in pieces, byte for byte, in both directions': async (t, { files }) => {
    const size = 3_000_001
    const put = await files.put(ID, pieces(size), facts)
    t.equal(put.size, size)
    const got = await files.get(ID)
    const chunks: Buffer[] = await got!.stream.toArray()
    t.ok(chunks.length > 1)
    const expected = Buffer.concat(await Array.fromAsync(pieces(size)))
    t.ok(Buffer.concat(chunks).equals(expected))
    t.equal((await files.put(`${ID}-again`, expected, facts)).etag, put.etag, 'the same bytes have the same etag')
  },
  'a range returns exactly its bytes': async (t, { files }) => {
    await files.put(ID, Buffer.from('0123456789'), facts)
    for (const [start, end, text] of [[0, 0, '0'], [2, 4, '234'], [9, 9, '9'], [0, 9, '0123456789']] as const) t.equal(await contentOf(files, ID, { start, end }), text)
    t.equal((await files.get(ID, { start: 2, end: 4 }).then((file) => (file?.stream.destroy(), file)))?.size, 10, 'the size is the whole file\'s')
    for (const [start, end] of [[10, 10], [0, 10], [4, 2], [-1, 3]] as const) await t.rejects(files.get(ID, { start, end }), RangeError)
  },
  'a range of a large file returns exactly its bytes, also across chunks': async (t, { files }) => {
    const size = 10 * MB
    const whole = Buffer.concat(await Array.fromAsync(pieces(size)))
    const put = await files.put(ID, pieces(size), facts)
    t.match(put, { size })
    for (const power of [18, 20, 22, 23]) {
      const edge = 2 ** power
      for (const [start, end] of [[edge - 1, edge - 1], [edge, edge], [edge - 3, edge + 3]] as const) {
        t.ok(Buffer.from((await contentOf(files, ID, { start, end })) ?? '', 'latin1').equals(whole.subarray(start, end + 1)), `${start} to ${end}`)
      }
    }
    t.equal(await contentOf(files, ID, { start: 3, end: size - 2 }).then((text) => text?.length), size - 4)
    t.equal((await files.put(`${ID}-again`, whole, facts)).etag, put.etag, 'the same bytes have the same etag, however they are split')
    t.equal((await files.stat(ID))?.etag, put.etag)
    t.equal((await files.get(ID).then((file) => (file?.stream.destroy(), file)))?.etag, put.etag)
  },
  'a large file is written and read with little of it in memory': async (t, { files }) => {
    const [size, bound] = [64 * MB, 24 * MB]
    const before = buffered()
    let most = 0
    const look = () => void (most = Math.max(most, buffered() - before))
    const piece = Buffer.alloc(64_000, 'tollgate')
    const body = async function* (): AsyncGenerator<Uint8Array> {
      for (let n = 0; n < size / piece.length; n++) {
        if (n % 64 === 0) look()
        yield piece
      }
    }
    await files.put(ID, body(), facts)
    t.ok(most < bound, `${most} bytes held while it was written`)
    most = 0
    const file = await files.get(ID)
    let [read, looked] = [0, 0]
    for await (const chunk of file!.stream as AsyncIterable<Buffer>) {
      read += chunk.length
      if (read - looked < 4 * MB) continue
      looked = read
      // Gives read-ahead the time to happen.
      for (let n = 0; n < 20; n++) await setImmediate()
      look()
    }
    t.equal(read, size)
    t.ok(most < bound, `${most} bytes held while it was read`)
  },
  'writing the same file again changes nothing, also concurrently': async (t, { files, another }) => {
    const other = await another()
    const all = await Promise.all([1, 2, 3, 4].map((n) => (n % 2 ? files : other).put(ID, pieces(200_000), facts)))
    t.equal(new Set(all.map(({ etag }) => etag)).size, 1)
    t.equal((await contentOf(files, ID))?.length, 200_000)
    t.same(await files.list('', 10), [ID])
  },
  'other bytes under an id replace the earlier ones, and have another etag': async (t, { files }) => {
    const first = await files.put(ID, Buffer.from('first'), facts)
    const second = await files.put(ID, Buffer.from('second'), { contentType: 'video/mp4', expiresAt: facts.expiresAt + 1 })
    t.not(second.etag, first.etag)
    t.match(await files.stat(ID), { size: 6, contentType: 'video/mp4', expiresAt: facts.expiresAt + 1 })
    t.equal(await contentOf(files, ID), 'second')
  },
  'a body that breaks off leaves nothing or the earlier file, and its error is rethrown': async (t, { files }) => {
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield Buffer.from('half')
      throw new TypeError('the provider went away')
    }
    await t.rejects(files.put(ID, broken(), facts), new TypeError('the provider went away'))
    t.equal(await files.stat(ID), null)
    t.same(await files.list('', 10), [])
    await files.put(ID, Buffer.from('whole'), facts)
    await t.rejects(files.put(ID, broken(), facts))
    t.equal(await contentOf(files, ID), 'whole')
  },
  'a file is not visible while it is being written': async (t, { files }) => {
    const { promise: rest, resolve } = Promise.withResolvers<void>()
    const { promise: begun, resolve: begin } = Promise.withResolvers<void>()
    const slow = async function* (): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(100_000)
      begin()
      await rest
      yield Buffer.alloc(100_000)
    }
    const put = files.put(ID, slow(), facts)
    await begun
    t.equal(await files.stat(ID), null)
    t.same(await files.list('', 10), [])
    t.equal(await files.sweep(facts.expiresAt, 10), 0)
    resolve()
    await put
    t.equal((await files.stat(ID))?.size, 200_000)
  },
  'a removed file does not exist, and removing it again is no error': async (t, { files }) => {
    await files.put(ID, Buffer.from('x'), facts)
    await files.remove(ID)
    await files.remove(ID)
    t.equal(await files.get(ID), null)
    t.same(await files.list('', 10), [])
  },
  'an open stream stays complete while its file is removed or replaced': async (t, { files }) => {
    const size = 3 * MB
    await files.put(ID, pieces(size), facts)
    const removed = await files.get(ID)
    await files.remove(ID)
    const hash = (chunks: Buffer[]) => createHash('sha256').update(Buffer.concat(chunks)).digest('hex')
    const expected = hash(await Array.fromAsync(pieces(size), (piece) => Buffer.from(piece)))
    t.equal(hash(await removed!.stream.toArray()), expected)
    await files.put(ID, pieces(size), facts)
    const replaced = await files.get(ID)
    await files.put(ID, Buffer.from('other'), facts)
    t.equal(hash(await replaced!.stream.toArray()), expected)
  },
  'a partly read stream can be destroyed': async (t, { files }) => {
    await files.put(ID, pieces(1_000_000), facts)
    const file = await files.get(ID)
    file!.stream.destroy()
    while (!file!.stream.closed) await setImmediate()
    t.ok(file!.stream.closed)
  },
  'a sweep removes expired files only, up to its limit': async (t, { files, another }) => {
    for (const [n, expiresAt] of [1000, 2000, 3000, 2001].entries()) await files.put(`file-${n}`, Buffer.from('x'), { ...facts, expiresAt })
    t.equal(await files.sweep(999, 10), 0)
    t.equal(await files.sweep(2000, 1), 1)
    t.equal(await files.sweep(2000, 10), 1)
    t.equal(await files.sweep(2000, 10), 0)
    t.same(await files.list('', 10), ['file-2', 'file-3'])
    await files.put('file-2', Buffer.from('x'), { ...facts, expiresAt: 9000 })
    t.equal(await files.sweep(3000, 10), 1, 'a rewritten file has its new expiry')
    t.same(await (await another()).list('', 10), ['file-2'])
    t.equal(await (await another()).sweep(9000, 10), 1, 'another handle has the same expiry times')
  },
  'list returns all ids in order, page by page': async (t, { files }) => {
    const ids = ['a-1', 'a-2', 'b-1', 'b-10', 'b-2']
    for (const id of ids.toReversed()) await files.put(id, Buffer.from('x'), facts)
    t.same(await files.list('', 2), ['a-1', 'a-2'])
    t.same(await files.list('a-2', 2), ['b-1', 'b-10'])
    t.same(await files.list('b-10', 2), ['b-2'])
    t.same(await files.list('b-2', 2), [])
  },
  'closing twice is no error, and a closed backend is Unavailable': async (t, { files }) => {
    await files.put(ID, Buffer.from('x'), facts)
    await files.close()
    await files.close()
    await t.rejects(files.stat(ID), Unavailable)
    await t.rejects(files.get(ID), Unavailable)
    await t.rejects(files.put(ID, Buffer.from('x'), facts), Unavailable)
    await t.rejects(files.sweep(0, 1), Unavailable)
  },
}
