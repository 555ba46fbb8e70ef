/** The contract of the store, in which every query of the adapter uses a declared index; and `docs/store.md` lists the indexes. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { MongoClient, type CommandStartedEvent, type Document } from 'mongodb'
import t, { type Test } from 'tap'
import { INDEXES, OBSOLETE } from '../../../src/backends/store/mongodb/mongodb.ts'
import { dropIndexes, type Index } from '../../../src/backends/store/mongodb/indexes.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { storePromises } from '../../contracts/store.ts'
import { mongodb } from '../../servers/mongodb.ts'
import { emptyDatabase, onMongodb } from './empty-store.ts'

/** Shape of a query: filter and sort. */
type Shape = { collection: string; filter: Document; sort: Document }

/** Every distinct command that the adapter sends during the contract suite. */
async function watched(t: Test, server: string): Promise<{ commands: Map<string, Document>; db: MongoClient }> {
  const commands = new Map<string, Document>()
  const { connect } = MongoClient.prototype
  t.teardown(() => Object.assign(MongoClient.prototype, { connect }))
  MongoClient.prototype.connect = function (this: MongoClient) {
    Object.assign(this, { monitorCommands: true })
    if (this.options.appName === 'tollgate') this.on('commandStarted', ({ command, commandName }: CommandStartedEvent) => void commands.set(shapeOf({ commandName, ...command }), command))
    return connect.call(this)
  }
  const { place } = await emptyDatabase(t, server)
  await runContract(t, storePromises, place)
  const db = new MongoClient(server)
  t.teardown(() => db.close())
  return { commands, db }
}

/** Equal for commands that differ only in their values. */
function shapeOf(command: Document): string {
  return JSON.stringify(command, (name, value: unknown) => {
    if (['lsid', '$clusterTime', '$db', 'documents', 'document', 'u', 'update'].includes(name) && typeof value !== 'string') return undefined
    return typeof value === 'number' || (typeof value === 'string' && !value.startsWith('$') && name !== 'commandName' && !NAMES.has(value)) ? '?' : value
  })
}

const NAMES = new Set([...Object.keys(INDEXES), 'meta', 'beats', 'leases', 'declarations'])

function shapesOf(command: Document): Shape[] {
  const collection = String(Object.values(command)[0])
  const shape = (filter: Document = {}, sort: Document = {}): Shape => ({ collection, filter, sort })
  const [name] = Object.keys(command)
  switch (name) {
    case 'find':
      return [shape(command['filter'], command['sort'])]
    case 'aggregate':
      return [shape(command['pipeline'].find((stage: Document) => '$match' in stage)?.$match, command['pipeline'][1]?.$sort)]
    case 'findAndModify':
      return [shape(command['query'])]
    case 'update':
      return command['updates'].map(({ q }: Document) => shape(q))
    case 'delete':
      return command['deletes'].map(({ q }: Document) => shape(q))
    default:
      return []
  }
}

/** Whether an index serves a query: equality first, then sort, then ranges, by the index prefix; a partial index needs its filter in the query. */
function serves({ key, partialFilterExpression = {} }: Pick<Index, 'key' | 'partialFilterExpression'>, { filter, sort }: Shape): boolean {
  const members = membersOf(filter)
  if (!Object.keys(partialFilterExpression).every((member) => members.has(member))) return false
  const names = Object.keys(key)
  let i = 0
  while (i < names.length && members.get(names[i]!) === 'exact') i++
  const order = Object.keys(sort)
  if (!order.every((member, n) => names[i + n] === member || members.get(member) === 'exact')) return false
  return i > 0 || members.has(names[0]!)
}

/** The members of a filter, and whether by exact value or by range. */
function membersOf(filter: Document): Map<string, 'exact' | 'range'> {
  const members = new Map<string, 'exact' | 'range'>()
  for (const [member, wanted] of Object.entries(filter)) {
    if (member.startsWith('$')) continue
    const operators = wanted !== null && typeof wanted === 'object' ? Object.keys(wanted) : []
    if (operators[0] === '$elemMatch') for (const [inner, kind] of membersOf(wanted.$elemMatch)) members.set(`${member}.${inner}`, kind)
    else members.set(member, operators.length === 0 || operators[0] === '$in' || operators[0] === '$eq' ? 'exact' : 'range')
  }
  return members
}

/** Small collections that are read as a whole: one document per process, one per manifest. */
const WHOLE = ['beats', 'declarations']

t.test('MongoDB keeps the store contract, and every query of the adapter is served by an index, including its sort', async (t) => {
  const server = await mongodb(t)
  if (!server) return
  const { commands, db } = await watched(t, server)
  const shapes = [...commands.values()].flatMap(shapesOf)
  t.ok(shapes.length > 60, `${shapes.length} shapes`)
  const unserved = shapes.filter((shape) => {
    const isWhole = Object.keys(shape.filter).length === 0 && WHOLE.includes(shape.collection)
    return !isWhole && ![{ key: { _id: 1 } } as const, ...(INDEXES[shape.collection] ?? [])].some((index) => serves(index, shape))
  })
  t.same(unserved, [])
  const used = (index: Index, collection: string) => index.unique || shapes.some((shape) => shape.collection === collection && serves(index, shape))
  t.same(Object.entries(INDEXES).flatMap(([collection, all]) => all.filter((index) => !used(index, collection)).map(({ name }) => `${collection} ${name}`)), [], 'no index is unused')

  const { version, gitVersion, ferretdb } = await db.db('admin').command({ buildInfo: 1 })
  t.comment(`server version ${version} ${gitVersion}`)
  if (ferretdb || !/^[0-9a-f]{40}$/.test(gitVersion)) t.comment('explain skipped: its stages are those of mongod, and this server is another implementation')
  else await explained(t, db, [...commands.values()])
})

/** Members of a command that belong to the connection. */
const OF_THE_CONNECTION = new Set(['lsid', '$db', '$clusterTime', 'txnNumber', 'readConcern', 'writeConcern'])

/** Query plans of a mongod: no collection scan, no sort. */
async function explained(t: Test, client: MongoClient, commands: Document[]): Promise<void> {
  for (const sent of commands) {
    const [shape] = shapesOf(sent)
    const command = Object.fromEntries(Object.entries(sent).filter(([name]) => !OF_THE_CONNECTION.has(name)))
    if (!shape || WHOLE.includes(shape.collection) || shape.collection === 'meta' || shape.collection === 'lanes') continue
    const plan = JSON.stringify(await client.db(sent['$db']).command({ explain: command, verbosity: 'queryPlanner' }))
    t.notMatch(plan, /"stage":"(COLLSCAN|SORT)"/, JSON.stringify(shape))
  }
}

t.test('indexes of the release before are dropped, as far as they are there, and no others', onMongodb(async (t, { place, db }) => {
  await (await (await place(t)).open()).close()
  for (const [collection, names] of Object.entries(OBSOLETE)) await db.collection(collection).createIndexes(names.map((name) => ({ name, key: { [`of_${name}`]: 1 } })))
  await Promise.all([dropIndexes(db, OBSOLETE), dropIndexes(db, OBSOLETE)])
  for (const [collection, all] of Object.entries(INDEXES)) {
    const there = (await db.collection(collection).indexes()).map(({ name }) => name).filter((name) => name !== '_id_')
    t.same(there.toSorted(), all.map(({ name }) => name).toSorted(), collection)
  }
}))

t.test('docs/store.md lists every index', async (t) => {
  const page = readFileSync(join(import.meta.dirname, '../../../docs/store.md'), 'utf8')
  const rows = Object.entries(INDEXES).flatMap(([collection, all]) =>
    all.map(({ name, key, unique, partialFilterExpression }) => {
      const kind = [unique && 'unique', partialFilterExpression && 'partial'].filter(Boolean).join(', ')
      return `| \`${collection}\` | \`${name}\` | ${Object.entries(key).map(([member, way]) => `\`${member}\`${way === -1 ? ' ↓' : ''}`).join(', ')} | ${kind} |`
    }),
  )
  t.same(rows.filter((row) => !page.includes(row)), [])
  t.equal(page.split('\n').filter((line) => /^\| `(subscriptions|periods|keys|tasks|deliveries|events|lanes|sessions|used_once|coding_requests|usage_records)` \|/.test(line)).length, rows.length, 'no other index is listed')
})
