/** Small pictures for the AI Room: their queue, and that the browser keeps them. */
import t from 'tap'
import type { Files } from '../../src/backends/files/files.ts'
import type { TaskResult } from '../../src/domain/task.ts'
import { openThumbnails } from '../../plugins/dashboard/thumbnails.ts'
import { png } from '../backends/engines/media-samples.ts'
import { openRoom } from './dashboard-room.ts'
import { isFinal } from './studio.ts'

const sharp = 'sharp'
const hasSharp = await import(sharp).then(
  () => true,
  () => false,
)

const result = (n: number) => ({ file: String(n), contentType: 'image/png', bytes: 1 }) as TaskResult

t.test('seventeen are taken at a time, and one that nobody waits for any more is not made', { skip: !hasSharp && 'sharp is not installed' }, async (t) => {
  const read: string[] = []
  const first = Promise.withResolvers<null>()
  const files: Pick<Files, 'get'> = { get: (file) => (read.push(file), file === '0' ? first.promise : Promise.resolve(null)) }
  const thumbnails = openThumbnails(files, { warn: () => {} })
  const begun = thumbnails.of(result(0), () => true)
  await new Promise((resolve) => setImmediate(resolve))
  const others = Array.from({ length: 16 }, (_, n) => thumbnails.of(result(n + 1), () => n !== 0))
  const late = thumbnails.of(result(99), () => true).then(() => t.same(read, ['0'], 'it has its answer before those that wait'))
  // Nothing of it waits for `first`.
  for (let turn = 0; turn < 10; turn++) await new Promise((resolve) => setImmediate(resolve))
  first.resolve(null)
  await Promise.all([begun, ...others, late])
  t.same(read, ['0', ...Array.from({ length: 15 }, (_, n) => String(n + 2))])
  await thumbnails.of(result(100), () => true)
  t.equal(read.at(-1), '100', 'there is room again')
})

t.test('a browser keeps a thumbnail, and no failure', { skip: !hasSharp && 'sharp is not installed' }, async (t) => {
  const room = await openRoom(t)
  const { id } = (await room.send({ method: 'POST', path: '/media/generations', body: { kind: 'image', prompt: 'a lighthouse' } })).json()
  await room.until(id, isFinal)
  const task = await room.store.task('acme', id)
  if (task?.outcome?.outcome !== 'completed') throw new Error('the task did not complete')
  // The scripted engine makes no picture.
  await room.app.tasks.files.put(task.outcome.result.file, png(640, 480), task.outcome.result)
  const made = await room.send({ path: `/media/results/${id}/thumbnail` })
  t.match([made.statusCode, made.headers], [200, { 'content-type': 'image/webp', 'cache-control': 'private, max-age=86400, immutable' }])
  t.match((await room.send({ path: '/media/results/none/thumbnail' })).headers, { 'cache-control': 'no-store' })
})
