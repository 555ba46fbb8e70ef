/** Lists beside a full queue: the rows that a page reads. */
import { DatabaseSync, type SQLInputValue } from 'node:sqlite'
import t, { type Test } from 'tap'
import type { Task } from '../../src/domain/task.ts'
import { task, taskId } from '../contracts/store/acme.ts'
import { openStudio } from '../plugins/studio.ts'

/** Counts the rows that the statements of SQLite return from now on. */
function countRows(t: Test): () => number {
  const { prepare } = DatabaseSync.prototype
  let rows = 0
  t.teardown(() => Object.assign(DatabaseSync.prototype, { prepare }))
  DatabaseSync.prototype.prepare = function (this: DatabaseSync, sql: string) {
    const statement = prepare.call(this, sql)
    const all: (...values: SQLInputValue[]) => unknown[] = statement.all.bind(statement)
    return Object.assign(statement, {
      all: (...values: SQLInputValue[]) => {
        const found = all(...values)
        rows += found.length
        return found
      },
    }) as typeof statement
  }
  return () => rows
}

t.test('a page of processing or queued tasks reads the rows of the page, whatever waits beside them', async (t) => {
  const rows = countRows(t)
  const studio = await openStudio(t, { loops: false })
  const store = async (from: number, to: number, facts: Partial<Task>) => {
    for (let n = from; n < to; n++) await studio.store.createTask(task(n, { state: 'queued', ...facts }))
  }
  await store(0, 1, { startedAt: null })
  await store(1, 3, { startedAt: 1000 })
  await store(3, 500, { startedAt: null })
  await store(500, 501, { state: 'settling', startedAt: 1000 })
  await store(501, 900, { startedAt: 1000 })
  const page = async (query: string) => {
    const before = rows()
    const response = await studio.get(`/api/v1/generations?limit=1&${query}`)
    t.equal(response.statusCode, 200)
    t.ok(rows() - before <= 10, `${rows() - before} rows`)
    return response.json()
  }
  const cursor = (n: number) => `cursor=${Buffer.from(taskId(n)).toString('base64url')}`
  t.match(await page(`status=processing&${cursor(501)}`), { data: [{ id: taskId(500), status: 'processing' }], has_more: true })
  t.match(await page(`status=processing&${cursor(500)}`), { data: [{ id: taskId(2), status: 'processing' }], has_more: true }, 'past the queue')
  t.match(await page(`status=processing&kind=image&${cursor(2)}`), { data: [{ id: taskId(1) }], has_more: false })
  t.match(await page('status=queued'), { data: [{ id: taskId(499), status: 'queued' }], has_more: true }, 'past those that wait for another attempt')
  t.match(await page(`status=queued&kind=image&${cursor(3)}`), { data: [{ id: taskId(0) }], has_more: false })
})

t.test('a page of large tasks, or of their events, ends early, and its cursor leads to the others', async (t) => {
  const studio = await openStudio(t, { loops: false })
  const input = { media_urls: Array.from({ length: 20 }, () => `https://example.com/${'a'.repeat(8_170)}`) }
  for (let n = 0; n < 20; n++) {
    const made = task(n, { object: 'operation', state: 'settling', input })
    await studio.store.createTask(made)
    const body = JSON.stringify({ timestamp: '2026-06-01T00:00:00Z', data: input })
    const logged = { id: `${made.id}.task.failed`, tenant: 'acme', taskId: made.id, event: 'task.failed' as const, body, loggedAt: studio.app.clock() }
    await studio.store.relay(made.id, [], [logged])
  }
  for (const path of ['/api/v1/operations', '/api/v1/events']) {
    const seen = new Set<string>()
    let [pages, cursor] = [0, '']
    for (let more = true; more; pages++) {
      const answer = await studio.get(`${path}?limit=100${cursor}`)
      t.ok(answer.rawPayload.length < 1.1 * 1024 * 1024, `${answer.rawPayload.length} bytes`)
      const page = answer.json()
      for (const { id } of page.data) seen.add(id)
      cursor = `&cursor=${page.next_cursor}`
      more = page.has_more
    }
    t.same([pages, seen.size], [4, 20], path)
  }
})
