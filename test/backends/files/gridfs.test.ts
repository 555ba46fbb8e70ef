/** Files backend in MongoDB: the contract, crashed writers, unreferenced chunks, servers that die, refuse or fall silent. */
import { randomUUID } from 'node:crypto'
import { MongoClient, type Db } from 'mongodb'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openFiles, type Files } from '../../../src/backends/files/files.ts'
import { filesPromises } from '../../contracts/files.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { mongodb, ownMongodb } from '../../servers/mongodb.ts'
import { interrupt } from '../interrupted-writes.ts'
import { haltingBody, until } from './halting-body.ts'

const facts = { contentType: 'video/mp4', expiresAt: 1_800_000_000_000 }
const HOUR = 3600 * 1000
const MB = 1_000_000

/** The URL with a database name. */
function within(url: string, database: string): string {
  return url.replace(/\/?(\?|$)/, (_, rest: string) => `/${database}${rest}`)
}

const WRITES = ['bulkWrite', 'insertMany', 'replaceOne', 'deleteOne', 'deleteMany'] as const

async function databaseOf(t: Test, url: string): Promise<{ storeUrl: string; db: Db; open: () => Promise<Files> }> {
  const name = `files-${randomUUID()}`
  const storeUrl = within(url, name)
  const client = await new MongoClient(url).connect()
  t.teardown(async () => {
    await client.db(name).dropDatabase().catch(() => undefined)
    await client.close()
  })
  const open = async (): Promise<Files> => {
    const files = await openFiles('gridfs:', { storeUrl })
    t.teardown(() => files.close())
    return files
  }
  return { storeUrl, db: client.db(name), open }
}

t.test('gridfs: without a MongoDB STORE_URL, or with an invalid one, is refused with an error', async (t) => {
  await t.rejects(openFiles('gridfs:', { storeUrl: 'sqlite:./data/tollgate.db' }), { name: 'Error', message: /STORE_URL is not a MongoDB URL: set STORE_URL to mongodb:/ })
  await t.rejects(openFiles('gridfs:', { storeUrl: 'mongodb://user:pa:ss@host/' }), { name: 'Error', message: /^STORE_URL is not a valid MongoDB address(?!.*pa:ss)/ })
  await t.rejects(openFiles('gridfs:', { storeUrl: 'mongodb://host/toll gate' }), { name: 'Error', message: /^STORE_URL is not a valid MongoDB address/ })
  await t.rejects(openFiles('gridfs:', { storeUrl: 'mongodb://host/?nonsense=1' }), { name: 'Error', message: /^STORE_URL is not a valid MongoDB address/ })
  await t.rejects(openFiles('ftp://somewhere'), { name: 'Error', message: /unknown scheme ftp: it must be disk:<folder>, gridfs: or s3:/ })
})

t.test('an unreachable MongoDB is Unavailable', async (t) => {
  await t.rejects(openFiles('gridfs:', { storeUrl: 'mongodb://127.0.0.1:1/' }), Unavailable)
})

t.test('on a shared server', async (t) => {
  const url = await mongodb(t)
  if (url === null) return

  await t.test('the contract', (t) =>
    runContract(t, filesPromises, async (t) => {
      const { open } = await databaseOf(t, url)
      return { files: await open(), another: open }
    }))

  await t.test('chunks of a removed, a replaced and a swept file are removed after a day', async (t) => {
    const { db, open } = await databaseOf(t, url)
    const [files, another] = [await open(), await open()]
    const chunks = db.collection('results.chunks')
    await files.put('kept-1', Buffer.alloc(2 * MB), facts)
    await files.put('removed-1', Buffer.alloc(2 * MB), facts)
    await files.put('replaced-1', Buffer.alloc(2 * MB), facts)
    await files.put('due-1', Buffer.alloc(2 * MB), { ...facts, expiresAt: 1000 })
    await files.remove('removed-1')
    await files.put('replaced-1', Buffer.alloc(3 * MB), facts)
    t.equal(await files.sweep(1000, 10), 1)
    t.equal(await chunks.countDocuments(), 2 + 2 + 2 + 3 + 2)
    await another.sweep(Date.now() + 23 * HOUR, 10)
    t.equal(await chunks.countDocuments(), 2 + 2 + 2 + 3 + 2)
    await another.sweep(Date.now() + 25 * HOUR, 10)
    t.equal(await chunks.countDocuments(), 2 + 3)
    t.equal(await db.collection('results.unused').countDocuments(), 0)
    for (const [id, size] of [['kept-1', 2 * MB], ['replaced-1', 3 * MB]] as const) t.equal((await (await another.get(id))!.stream.toArray()).reduce((sum, chunk: Buffer) => sum + chunk.length, 0), size)
  })

  await t.test('chunks of a crashed writer are not a file and are removed after a day; those of a running writer stay', async (t) => {
    const { db, open } = await databaseOf(t, url)
    const [crashed, living] = [await open(), await open()]
    const chunks = db.collection('results.chunks')
    const [lost, kept] = [haltingBody(5 * MB), haltingBody(5 * MB)]
    const failed = t.rejects(crashed.put('lost-1', lost.body, facts), Unavailable)
    const written = living.put('kept-1', kept.body, facts)
    await Promise.all([lost.reached, kept.reached])
    await until(async () => (await chunks.countDocuments()) >= 2 * 4)
    await crashed.close()
    lost.goOn()
    await failed
    await living.sweep(Date.now() + 23 * HOUR, 10)
    const before = await chunks.countDocuments()
    await living.sweep(Date.now() + 25 * HOUR, 10)
    t.ok((await chunks.countDocuments()) < before)
    kept.goOn()
    t.equal((await written).size, 10 * MB)
    t.equal(await chunks.countDocuments(), 10)
    t.same(await living.list('', 10), ['kept-1'])
  })

  await t.test('a body that breaks off leaves no chunk behind', async (t) => {
    const { db, open } = await databaseOf(t, url)
    const files = await open()
    const broken = async function* (): AsyncGenerator<Uint8Array> {
      yield Buffer.alloc(5 * MB)
      throw new TypeError('the provider went away')
    }
    await t.rejects(files.put('a-1', broken(), facts), new TypeError('the provider went away'))
    t.equal(await db.collection('results.chunks').countDocuments(), 0)
    t.equal(await db.collection('results.unused').countDocuments(), 0)
  })

  await t.test('twenty concurrent writers and removers of one id leave one whole file or none, and no chunks after a day', async (t) => {
    const { db, open } = await databaseOf(t, url)
    const handles = await Promise.all([open(), open(), open()])
    const at = (n: number) => handles[n % handles.length]!
    await Promise.all(Array.from({ length: 20 }, (_, n) => (n % 5 === 4 ? at(n).remove('a-1') : at(n).put('a-1', Buffer.alloc(MB + n, n), facts))))
    await at(0).put('a-1', Buffer.alloc(MB, 99), facts)
    const content = Buffer.concat(await (await at(1).get('a-1'))!.stream.toArray())
    t.ok(content.equals(Buffer.alloc(MB, 99)))
    await at(2).sweep(Date.now() + 25 * HOUR, 10)
    t.equal(await db.collection('results.chunks').countDocuments(), 1)
    t.equal(await db.collection('results.unused').countDocuments(), 0)
    t.equal((await (await at(1).get('a-1'))!.stream.toArray()).length, 1)
  })

  await t.test('whichever write loses its answer, a put and its replacement are whole, and no other chunks are left after a day', async (t) => {
    const { db, open } = await databaseOf(t, url)
    const files = await open()
    const put = async (fault: { write: number; happens: boolean }): Promise<number> => {
      const restore = interrupt(WRITES, fault)
      try {
        for (const [size, n] of [[MB, 1], [3 * MB, 2]] as const) t.equal((await files.put('a-1', Buffer.alloc(size, n), facts)).size, size)
      } finally {
        restore()
      }
      t.ok(Buffer.concat(await (await files.get('a-1'))!.stream.toArray()).equals(Buffer.alloc(3 * MB, 2)))
      await files.remove('a-1')
      await files.sweep(Date.now() + 25 * HOUR, 10)
      t.equal(await db.collection('results.chunks').countDocuments(), 0)
      t.equal(await db.collection('results.unused').countDocuments(), 0)
      return restore()
    }
    const writes = await put({ write: 0, happens: false })
    for (let write = 1; write <= writes; write++) for (const happens of [true, false]) await put({ write, happens })
  })

  await t.test('a file with missing chunks fails as Unavailable, and is never truncated silently', async (t) => {
    const { db, open } = await databaseOf(t, url)
    const files = await open()
    await files.put('a-1', Buffer.alloc(3 * MB), facts)
    await db.collection('results.chunks').deleteOne({ n: 1 })
    await t.rejects((await files.get('a-1'))!.stream.toArray(), Unavailable)
  })
})

t.test('a server killed during a put leaves no visible file, and the same client works again after its restart', async (t) => {
  const server = await ownMongodb(t)
  if (!server) return
  const { db, open } = await databaseOf(t, server.url)
  const files = await open()
  await files.put('before-1', Buffer.alloc(3 * MB, 7), facts)
  const { body, reached, goOn } = haltingBody(5 * MB)
  const put = t.rejects(files.put('cut-1', body, facts), Unavailable)
  await reached
  const reading = (await files.get('before-1'))!.stream
  await server.kill()
  goOn()
  await put
  await t.rejects(files.stat('before-1'), Unavailable)
  await t.rejects(reading.toArray(), Unavailable)
  await server.start()
  await until(() => files.stat('before-1').then(() => true, () => false))
  t.equal(await files.stat('cut-1'), null)
  t.same(await files.list('', 10), ['before-1'])
  await files.put('cut-1', Buffer.alloc(MB), facts)
  await files.sweep(Date.now() + 25 * HOUR, 10)
  t.equal(await db.collection('results.chunks').countDocuments(), 3 + 1)
  t.equal((await (await files.get('before-1'))!.stream.toArray()).length, 3)

  await server.freeze()
  // The server may still answer requests that arrive before the signal. The test ends only if the wait for a silent server is bounded.
  await until(() => files.stat('before-1').then(() => false, (error: unknown) => error instanceof Unavailable))
  server.thaw()
  await until(() => files.stat('before-1').then(() => true, () => false))
})

t.test('wrong credentials are reported to the operator', async (t) => {
  const server = await ownMongodb(t, { auth: true })
  if (!server) return
  const name = `files-${randomUUID()}`
  const files = await openFiles('gridfs:', { storeUrl: within(server.url, name) })
  await files.close()
  await t.rejects(openFiles('gridfs:', { storeUrl: within(server.url.replace('keeper-secret', 'wrong'), name) }), { name: 'Error', message: /refuses the credentials: check the user, the password/ })
})
