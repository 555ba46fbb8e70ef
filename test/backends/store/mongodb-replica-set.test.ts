/** What goes over the wire to a replica set: concerns and shards of every command are those of `docs/store.md`, and the driver repeats what a failover takes. */
import { randomUUID } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MongoClient, type Document } from 'mongodb'
import t from 'tap'
import { openFiles } from '../../../src/backends/files/files.ts'
import { clientOf } from '../../../src/backends/mongodb/client.ts'
import { dropIndexes } from '../../../src/backends/store/mongodb/indexes.ts'
import { INDEXES, OBSOLETE } from '../../../src/backends/store/mongodb/mongodb.ts'
import { type Store } from '../../../src/backends/store/store.ts'
import { FATES, openReplicaSet } from '../../fakes/replica-set.ts'
import { filesPromises } from '../../contracts/files.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { storePromises } from '../../contracts/store.ts'
import { admit, ID, keyVersion, plan, T0, task, taskId } from '../../contracts/store/acme.ts'
import { mongodb } from '../../servers/mongodb.ts'
import { emptyDatabase } from './empty-store.ts'

const PAGE = readFileSync(join(import.meta.dirname, '../../../docs/store.md'), 'utf8')

/** The cells of the rows below a heading of the page. */
function table(heading: string): string[][] {
  const [, below = ''] = PAGE.split(`\n### ${heading}\n`)
  const rows = below.split('\n### ')[0]?.split('\n').filter((line) => line.startsWith('| ')) ?? []
  return rows.map((line) => line.split('|').slice(1, -1).map((cell) => cell.trim())).slice(1)
}

const nameOf = (command: Document) => Object.keys(command)[0] ?? ''
const isOfMany = ({ updates = [], deletes = [] }: Document) => updates.some((one: Document) => one['multi']) || deletes.some((one: Document) => one['limit'] === 0)

/** What the page says of a command, as a row of its table. */
function rowOf(command: Document): string[] {
  const { readConcern, writeConcern } = command
  const name = nameOf(command)
  const place = command[name] === 'meta' && writeConcern ? ' of `meta`' : name === 'createIndexes' && String(command[name]).startsWith('results.') ? ' of the files' : ''
  const kind = `\`${name}\`${isOfMany(command) ? ' of many' : ''}${place}`
  const writes = writeConcern && [`\`${writeConcern.w}\``, writeConcern.j && 'journal', writeConcern.wtimeout && `${writeConcern.wtimeout / 1000} s`].filter(Boolean).join(', ')
  return [kind, readConcern ? `\`${readConcern.level}\`` : '', writes ?? '', READS.includes(name) || command['txnNumber'] !== undefined ? 'once' : 'no']
}

const READS = ['find', 'aggregate', 'listIndexes']

const OPERATORS = ['$in', '$eq']
/** Whether a value of a filter is of few shards. */
const isExact = (value: unknown) => value !== undefined && (value === null || typeof value !== 'object' || OPERATORS.includes(Object.keys(value)[0] ?? ''))

/** Whether a router knows from the command which shards it is for. */
function namesShard(command: Document, key: string): boolean {
  const isOne = (filter: Document = {}) => isExact(filter[key])
  const { documents, updates, deletes, pipeline, query, filter } = command
  if (documents) return documents.every(isOne)
  if (updates) return updates.every(({ q, u }: Document) => isOne(q) || isOne(u))
  if (deletes) return deletes.every(({ q }: Document) => isOne(q))
  return isOne(query ?? filter ?? pipeline?.find((stage: Document) => '$match' in stage)?.$match)
}

t.test('over a replica set the store and the files keep their contracts, and each command has the concerns and the shards of its row', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const set = await openReplicaSet(server)
  t.teardown(() => set.close())
  const rows = new Map<string, string[]>()
  const scattered = new Map<string, Set<string>>()
  const keys = new Map(table('Sharding').flatMap(([collections = '', key = '']) => collections.split(', ').map((one) => [one, /^`(\w+)`/.exec(key)?.[1]])))
  set.decide((command) => {
    if (nameOf(command) === 'endSessions') return 'passes'
    rows.set(String(rowOf(command)), rowOf(command))
    const [name, collection] = [nameOf(command), String(command[nameOf(command)])]
    if (command['$readPreference']) t.match(command['$readPreference'], { mode: 'primary' })
    if (typeof command[name] !== 'string' || name.endsWith('Indexes')) return 'passes'
    const key = keys.get(collection)
    const found = scattered.get(collection) ?? new Set()
    if (key && !namesShard(command, key)) found.add(name)
    scattered.set(collection, found)
    return 'passes'
  })
  const { place, db } = await emptyDatabase(t, server, '', set.url)
  await runContract(t, storePromises, place)
  await db.collection('events').createIndexes([{ name: 'logged', key: { at: 1 } }])
  const dropping = clientOf(set.url, 'request')
  t.teardown(() => dropping.close())
  await dropIndexes(dropping.db(db.databaseName), OBSOLETE)
  const client = new MongoClient(server)
  t.teardown(() => client.close())
  await runContract(t, filesPromises, async (t) => {
    const name = `files-${randomUUID()}`
    t.teardown(() => client.db(name).dropDatabase())
    const another = async () => {
      const files = await openFiles('gridfs:', { storeUrl: `${set.url}${name}` })
      t.teardown(() => files.close())
      return files
    }
    return { files: await another(), another }
  }, { 'a large file is written and read with little of it in memory': 'the fake has it in the memory of this process' })

  t.same([...rows.values()].sort(), table('Concerns').sort())
  t.same([...scattered.keys()].filter((collection) => !keys.has(collection)), [], 'every collection has a row')
  for (const [collections = '', , everywhere = ''] of table('Sharding'))
    for (const collection of collections.split(', ')) t.same([...(scattered.get(collection) ?? [])].sort().join(', '), everywhere.replaceAll('`', ''), collection)
  for (const [collection, key] of keys) {
    const unique = key ? (INDEXES[collection] ?? []).filter((index) => index.unique) : []
    t.same(unique.filter((index) => Object.keys(index.key)[0] !== key), [], `unique values of ${collection} are of one shard`)
  }
})

/** Each with a command that it sends, and its answer. */
const VERBS: [command: string, verb: (store: Store) => Promise<unknown>, answer: unknown][] = [
  ['update', (store) => store.change(ID, admit('r', 10), T0), { outcome: 'admitted' }],
  ['insert', (store) => store.createTask(task(1)), { outcome: 'created' }],
  ['find', (store) => store.task('acme', taskId(1)), { id: taskId(1), state: 'pending' }],
  ['update', (store) => store.moveTask(taskId(1), { from: ['pending'] }, 'queued', {}), { id: taskId(1), state: 'queued' }],
  ['insert', (store) => store.mintKey(keyVersion('k', 0)), { outcome: 'created' }],
  ['findAndModify', (store) => store.setKey('k-0', { state: 'active' }, []), { id: 'k-0', state: 'active' }],
  ['insert', (store) => store.takeLease('sweep', 'a', T0 + 1000, T0), true],
  ['delete', (store) => store.releaseLease('sweep', 'a'), undefined],
  ['insert', (store) => store.takeLease('sweep', 'b', T0 + 1000, T0), true],
]

t.test('a command that is lost with a primary, late, doubled or refused is repeated and takes effect once: its caller notices nothing', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const set = await openReplicaSet(server)
  t.teardown(() => set.close())
  const { place } = await emptyDatabase(t, server, '', set.url)
  for (const fate of FATES) {
    set.decide(() => 'passes')
    const store = await (await place(t)).open()
    await store.change(ID, plan(), T0)
    for (const [command, verb, answer] of VERBS) {
      let struck = 0
      set.decide((sent) => (nameOf(sent) === command && struck++ === 0 ? fate : 'passes'))
      t.match({ answer: await verb(store) }, { answer }, `${fate} ${command}`)
      t.ok(struck > 0)
    }
    t.same(Object.keys((await store.subscription(ID))?.coding?.reservations ?? {}), ['r'])
  }
})
