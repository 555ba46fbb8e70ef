/** Pages of a tenant's list with many finished tasks in SQLite, over HTTP, one request after the other. */
import { randomUUID } from 'node:crypto'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { setTimeout as pause } from 'node:timers/promises'
import { openStore } from '../src/backends/store/store.ts'
import { finishedTask, idAt } from './finished-tasks.ts'
import { tenant } from './manifests.ts'
import type { Choice, Stage } from './stage.ts'
import { median, percentile } from './statistics.ts'
import type { Table } from './table.ts'

const AGE_MS = 30 * 24 * 3600 * 1000
const REQUESTS = 500

export async function lists(stage: Stage, { finished }: Choice): Promise<Table> {
  const empty = await stage.studio('lists', 1, 'cores')
  const key = await stage.key('lists')
  await empty.stop()
  const now = Date.now()
  const fillMs = await fill(join(stage.folder, 'lists/data/tollgate.db'), finished, now)
  const studio = await stage.studio('lists', 1, 'cores')
  const middle = now - AGE_MS / 2
  const pages = {
    'the newest 20': 'limit=20',
    'the newest 100': 'limit=100',
    '20 from the middle, by cursor': `limit=20&cursor=${Buffer.from(idAt(middle)).toString('base64url')}`,
    '20 of a kind before a time': `limit=20&kind=image&created_before=${new Date(middle).toISOString()}`,
    'failed tasks, of which there are none': 'limit=20&status=failed',
  }
  const rows: Table['rows'] = []
  for (const [name, query] of Object.entries(pages)) {
    const taken: number[] = []
    const beforeMs = studio.cpuMs()
    for (let n = 0; n < REQUESTS; n++) taken.push(await pageMs(`${studio.url}/api/v1/generations?${query}`, key))
    rows.push([name, median(taken).toFixed(1), percentile(taken, 0.99).toFixed(1), ((studio.cpuMs() - beforeMs) / REQUESTS).toFixed(2)])
  }
  await studio.stop()
  return {
    title: `Pages of a list of ${finished.toLocaleString('en')} tasks on SQLite (milliseconds, ${REQUESTS} requests each)`,
    head: ['', 'p50', 'p99', 'processor time each'],
    rows,
    note: `Ready with them in ${studio.readyMs.toFixed(0)} ms, without in ${empty.readyMs.toFixed(0)} ms; filled in ${(fillMs / 1000).toFixed(0)} s.`,
  }
}

async function pageMs(url: string, key: string): Promise<number> {
  const startMs = performance.now()
  const response = await fetch(url, { headers: { authorization: `Bearer ${key}` } })
  await response.arrayBuffer()
  if (response.status === 429) {
    // An idle machine reads faster than a key may; what waits is not part of a figure.
    await pause(Number(response.headers.get('retry-after')) * 1000)
    return pageMs(url, key)
  }
  if (response.status !== 200) throw new Error(`${url} answered ${response.status}`)
  return performance.now() - startMs
}

/** Stores one task by the adapter, and copies its row. Returns the milliseconds taken. */
async function fill(file: string, count: number, now: number): Promise<number> {
  const startMs = performance.now()
  const store = await openStore(`sqlite:${file}`)
  const task = finishedTask(randomUUID(), tenant(0))
  await store.createTask(task)
  await store.close()
  const db = new DatabaseSync(file)
  const model = db.prepare('SELECT * FROM tasks WHERE id = ?').get(task.id) as Record<string, string | number | null>
  // `table_info` leaves out generated columns, which cannot be written.
  const columns = db.prepare('PRAGMA table_info(tasks)').all().map((column) => String(column['name']))
  const insert = db.prepare(`INSERT INTO tasks (${columns.join(', ')}) VALUES (${columns.map(() => '?').join(', ')})`)
  db.exec('BEGIN')
  for (let n = 1; n < count; n++) {
    const createdAt = Math.floor(now - AGE_MS + (n * AGE_MS) / count)
    const row: typeof model = { ...model, id: idAt(createdAt), created_at: createdAt, done_at: createdAt + 50 }
    row['record'] = JSON.stringify({ ...task, id: row['id'], createdAt, startedAt: createdAt + 20, endedAt: createdAt + 50 })
    insert.run(...columns.map((column) => row[column] ?? null))
  }
  db.exec('COMMIT')
  db.close()
  return performance.now() - startMs
}
