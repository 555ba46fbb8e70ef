import { Readable } from 'node:stream'
import t from 'tap'
import type { FileFacts, Files } from '../../src/backends/files/files.ts'
import { openBudget } from '../../src/domain/media-info/counted-length.ts'
import { openFileInfo } from '../../src/tasks/source-info.ts'
import { png } from '../backends/engines/media-samples.ts'

const PICTURE = png(6, 4)

/** A backend whose files all have this content, and what was read of it. */
function filesOf(content: Buffer) {
  const read: string[] = []
  const broken = new Set<string>()
  const files = {
    async get(id: string, { start, end }: { start: number; end: number }) {
      read.push(id)
      return broken.has(id) ? null : { stream: Readable.from([content.subarray(start, end + 1)]) }
    },
  } as unknown as Files
  return { files, read, broken, fact: (id: string) => ({ id, size: content.length }) as FileFacts }
}

t.test('a file is read once, however often and by however many at once it is quoted', async (t) => {
  const { files, read, fact } = filesOf(PICTURE)
  const fileInfo = openFileInfo(files)
  const infos = await Promise.all([1, 2, 3].map(() => fileInfo(fact('a'))))
  infos.push(await fileInfo(fact('a'), openBudget()))
  for (const info of infos) t.match(info, { contentType: 'image/png', width: 6, height: 4 })
  t.same(read, ['a'])
})

t.test('a file that could not be read is read again', async (t) => {
  const { files, read, broken, fact } = filesOf(PICTURE)
  const fileInfo = openFileInfo(files)
  broken.add('a')
  await t.rejects(fileInfo(fact('a')), { name: 'Unavailable' })
  broken.clear()
  t.match(await fileInfo(fact('a')), { contentType: 'image/png' })
  t.same(read, ['a', 'a'])
})

t.test('a file of which no length could be counted is read again only if the files before it had used up the counting', async (t) => {
  const { files, read, fact } = filesOf(PICTURE)
  const fileInfo = openFileInfo(files)
  const used = () => ({ ...openBudget(), parts: 0 })
  await fileInfo(fact('a'), used())
  await fileInfo(fact('a'), used())
  t.same(read, ['a', 'a'])
  await fileInfo(fact('a'))
  await fileInfo(fact('a'), used())
  t.same(read, ['a', 'a', 'a'])
})

t.test('what is left of the counting for one request is not the counting of another', async (t) => {
  const { files, read, fact } = filesOf(PICTURE)
  const fileInfo = openFileInfo(files)
  await Promise.all([fileInfo(fact('a'), { ...openBudget(), parts: 0 }), fileInfo(fact('a'))])
  t.same(read, ['a', 'a'])
})
