/** API key versions in MongoDB. */
import { Unavailable } from '../../../domain/errors.ts'
import type { KeyState, KeyVersion } from '../../../domain/api-keys.ts'
import { idRange, NEWEST, withOlder, type KeyVerbs } from '../key-versions.ts'
import type { KeyChange, Store } from '../store.ts'
import { batchReads } from './bulk-commands.ts'
import { add, fromStored, toStored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'
import { createBatcher } from '../../../concurrency/batching.ts'

export const keyIndexes = {
  keys: [
    // findKey
    { name: 'hash', key: { hash: 1 }, unique: true },
    // mintKey, keyVersions
    { name: 'revisions', key: { keyId: 1, revision: -1 }, unique: true },
    // keysAlive
    { name: 'alive', key: { state: 1, _id: 1 } },
    // keysOf
    { name: 'of_subscription', key: { subscription: 1, state: 1, _id: 1 } },
    // keysToTell
    { name: 'to_tell', key: { tell: 1 } },
    // forgetSealed
    { name: 'ended', key: { endedAt: 1, state: 1 }, partialFilterExpression: { sealed: { $gt: '' } } },
  ],
} satisfies Indexes

const ALIVE: KeyState[] = ['pending', 'active', 'suspended', 'revoked']

/** Keys in one read; each has a few versions. */
const MAX_KEYS = 200
/** Versions in one read; keys that this leaves incomplete are read one by one. */
const MAX_VERSIONS = 2_000

export function openKeys(database: Database): KeyVerbs {
  const keys = database.collection<Stored<KeyVersion>>('keys')
  const entityOrNull = (found: Stored<KeyVersion> | null) => (found ? fromStored<KeyVersion>(found) : null)
  const list = async (found: Promise<Stored<KeyVersion>[]>) => (await found).map(fromStored<KeyVersion>)

  async function mintKey(key: KeyVersion): ReturnType<Store['mintKey']> {
    if ((await add(keys, toStored(key))) === 'added') return { outcome: 'created', key }
    const existing = entityOrNull(await keys.findOne({ keyId: key.keyId, revision: key.revision }))
    if (!existing) throw new Unavailable('store', new Error('another key has the same hash'))
    return { outcome: 'existing', key: existing }
  }

  async function setKey(id: string, change: KeyChange, tell: string[]): Promise<KeyVersion | null> {
    const from = change.state === undefined ? {} : { state: { $in: mayBecome(change.state) } }
    const update = {
      ...(Object.keys(change).length > 0 && { $set: change }),
      ...(tell.length > 0 && { $addToSet: { tell: { $each: tell } } }),
    }
    const changed =
      Object.keys(update).length > 0 && (await keys.findOneAndUpdate({ _id: id, ...from }, update, { returnDocument: 'after' }))
    return entityOrNull(changed || (await keys.findOne({ _id: id })))
  }

  async function forgetSealed(before: number, limit: number): Promise<number> {
    const endedBefore = { endedAt: { $gt: 0, $lt: before }, sealed: { $gt: '' }, tell: { $size: 0 } }
    const ended = await keys.find(endedBefore, { projection: { _id: 1 }, sort: { endedAt: 1 }, limit }).toArray()
    if (ended.length > 0) await keys.updateMany({ _id: { $in: ended.map(({ _id }) => _id) } }, { $set: { sealed: null } })
    return ended.length
  }

  const keyOf = batchReads(keys, 'hash')

  async function versionsOfOne(keyId: string): Promise<KeyVersion[]> {
    const [after, before] = idRange(keyId)
    const newest = await list(keys.find({ keyId }, { sort: { revision: -1 }, limit: NEWEST }).toArray())
    // Not by `keyId`, whose index has all versions.
    const alive = await list(keys.find({ state: { $in: ALIVE }, _id: { $gt: after, $lt: before } }).toArray())
    return withOlder(
      newest,
      alive.filter((version) => version.keyId === keyId),
    )
  }

  // Batched: after a start the controller reads thousands of keys.
  const versionsOf = createBatcher<string, KeyVersion[]>({
    backend: 'store',
    async send(keyIds) {
      const query = { keyId: { $in: [...new Set(keyIds)] } }
      const found = await list(keys.find(query, { sort: { keyId: 1, revision: -1 }, limit: MAX_VERSIONS }).toArray())
      const versions = Map.groupBy(found, ({ keyId }) => keyId)
      const cut = found.length < MAX_VERSIONS ? null : (found.at(-1)?.keyId ?? null)
      return Promise.all(
        keyIds.map(async (keyId) => ({
          answer: cut === null || keyId < cut ? (versions.get(keyId) ?? []) : await versionsOfOne(keyId),
        })),
      )
    },
    idOf: (keyId) => keyId,
    shares: true,
    most: MAX_KEYS,
  })

  return {
    mintKey,
    setKey,
    told: async (id, subscriptions) => {
      await keys.updateOne({ _id: id }, { $pullAll: { tell: subscriptions } })
    },
    keysUsed: async (uses) => {
      if (uses.length === 0) return
      // In one order everywhere, so that two commands do not deadlock.
      const sorted = uses.toSorted((a, b) => (a.id < b.id ? -1 : 1))
      const updates = sorted.map(({ id, at }) => ({ updateOne: { filter: { _id: id }, update: { $max: { lastUsedAt: at } } } }))
      await keys.bulkWrite(updates, { ordered: false })
    },
    keysToTell: (limit) => list(keys.find({ tell: { $gte: '' } }, { limit }).toArray()),
    findKey: async (hash) => entityOrNull(await keyOf(hash)),
    keyVersion: async (id) => entityOrNull(await keys.findOne({ _id: id })),
    keyVersions: versionsOf,
    keysAlive: (after, limit) => list(keys.find({ state: { $in: ALIVE }, _id: { $gt: after } }, { sort: { _id: 1 }, limit }).toArray()),
    keysOf: (subscription) => list(keys.find({ subscription, state: { $in: ALIVE } }, { sort: { _id: 1 } }).toArray()),
    forgetSealed,
  }
}

/** The states from which `state` may be reached: a revoked version can only be deleted, and a deleted one stays deleted. */
function mayBecome(state: KeyState): KeyState[] {
  if (state === 'deleted') return [...ALIVE, 'deleted']
  return state === 'revoked' ? ALIVE : ['pending', 'active', 'suspended']
}
