/** Files backend on disk: the contract, file modes, foreign files, crashed writers. */
import { existsSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openFiles, type Files } from '../../../src/backends/files/files.ts'
import { filesPromises } from '../../contracts/files.ts'
import { runContract } from '../../contracts/run-contract.ts'

const facts = { contentType: 'image/png', expiresAt: 1_800_000_000_000 }
const DAY = 24 * 3600 * 1000

async function folderOf(t: Test): Promise<{ folder: string; open: () => Promise<Files> }> {
  const folder = join(t.testdir(), 'files')
  const open = async (): Promise<Files> => {
    const files = await openFiles(`disk:${folder}`)
    t.teardown(() => files.close())
    return files
  }
  return { folder, open }
}

t.test('the contract', (t) =>
  runContract(t, filesPromises, async (t) => {
    const { open } = await folderOf(t)
    return { files: await open(), another: open }
  }))

t.test('files and folders have private modes, and a file begins with its bytes', async (t) => {
  const { folder, open } = await folderOf(t)
  const files = await open()
  await files.put('a-1', Buffer.from('\x89PNG and more', 'latin1'), facts)
  t.equal(statSync(join(folder, 'a-1')).mode & 0o777, 0o600)
  t.equal(statSync(folder).mode & 0o777, 0o700)
  t.ok(readFileSync(join(folder, 'a-1'), 'latin1').startsWith('\x89PNG and more'))
  t.same(readdirSync(join(folder, '.incoming')), [])
})

t.test('files survive a restart', async (t) => {
  const { open } = await folderOf(t)
  const before = await open()
  const put = await before.put('a-1', Buffer.from('x'), facts)
  await before.close()
  t.same(await (await open()).stat('a-1'), put)
})

t.test('a temporary file of a crashed writer is not listed, and is removed a day later', async (t) => {
  const { folder, open } = await folderOf(t)
  const files = await open()
  const [old, fresh] = ['a-1.0000', 'a-2.0000'].map((name) => join(folder, '.incoming', name)) as [string, string]
  writeFileSync(old, 'half of')
  writeFileSync(fresh, 'half of')
  const now = 1_700_000_000_000
  utimesSync(old, (now - DAY - 1000) / 1000, (now - DAY - 1000) / 1000)
  utimesSync(fresh, (now - 1000) / 1000, (now - 1000) / 1000)
  t.equal(await files.stat('a-1'), null)
  await files.sweep(now, 10)
  t.same([existsSync(old), existsSync(fresh)], [false, true])
})

t.test('foreign content, truncated files and symbolic links are not files', async (t) => {
  const { folder, open } = await folderOf(t)
  const files = await open()
  await files.put('whole-1', Buffer.from('some bytes'), facts)
  const whole = readFileSync(join(folder, 'whole-1'))
  writeFileSync(join(folder, 'foreign-1'), 'notes of somebody')
  writeFileSync(join(folder, 'foreign-2'), '')
  writeFileSync(join(folder, 'cut-1'), whole.subarray(0, -1))
  writeFileSync(join(folder, 'bent-1'), Buffer.concat([Buffer.from('{"no json'), Buffer.of(0, 0, 0, 9), Buffer.from('TGF1')]))
  writeFileSync(join(folder, 'long-1'), Buffer.concat([Buffer.of(255, 255, 255, 255), Buffer.from('TGF1')]))
  symlinkSync(join(folder, 'whole-1'), join(folder, 'link-1'))
  for (const id of ['foreign-1', 'foreign-2', 'cut-1', 'bent-1', 'long-1', 'link-1']) {
    t.equal(await files.stat(id), null, id)
    t.equal(await files.get(id), null, id)
  }
  t.equal(await files.sweep(facts.expiresAt, 10), 1)
  t.ok(existsSync(join(folder, 'foreign-1')), 'a sweep by time leaves them alone')
  t.same(await files.list('', 10), ['bent-1', 'cut-1', 'foreign-1', 'foreign-2', 'link-1', 'long-1'], 'a sweep of orphans finds them')
})

t.test('a disk failure is Unavailable, with the cause', async (t) => {
  const { folder, open } = await folderOf(t)
  const files = await open()
  rmSync(folder, { recursive: true })
  writeFileSync(folder, 'no folder')
  const failures: (() => Promise<unknown>)[] = [() => files.put('a-1', Buffer.from('x'), facts), () => files.stat('a-1'), () => files.list('', 1), () => files.sweep(0, 1)]
  for (const call of failures) await t.rejects(call, { name: 'Unavailable', backend: 'files', cause: { code: 'ENOTDIR' } })
  await t.rejects(open(), Unavailable)
  await t.rejects(files.get('a-1'), { message: 'the files is unavailable' })
})

t.test('a folder that cannot be created fails the opening', async (t) => {
  // A file at the path stops root, too, whom no mode stops.
  const parent = t.testdir({ closed: 'no folder' })
  await t.rejects(openFiles(`disk:${join(parent, 'closed', 'files')}`), Unavailable)
})
