/** Versions of API keys in MongoDB. */
import { Unavailable } from '../../../domain/errors.ts'
import type { KeyState, KeyVersion } from '../../../domain/api-keys.ts'
import type { KeyChange, Store } from '../store.ts'
import { batchReads } from './bulk-commands.ts'
import { add, nounOf, stored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'
import type { Upgrade } from './migrations.ts'
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

/** Versions that ended before it was written down ended now. */
export const keyEnds: Upgrade = async (db) => {
  const keys = db.collection('keys')
  await keys.updateMany(UNTOLD, { $set: { endedAt: Date.now() } })
  await keys.updateMany({ endedAt: { $exists: false } }, { $set: { endedAt: null } })
}

/** Whose end was not written down. */
const UNTOLD = { endedAt: null, state: { $in: ['revoked', 'deleted'] satisfies KeyState[] } }

type Verbs = 'mintKey' | 'setKey' | 'told' | 'keysToTell' | 'findKey' | 'keyVersions' | 'keysAlive' | 'keysOf' | 'forgetSealed'

const ALIVE: KeyState[] = ['pending', 'active', 'suspended', 'revoked']

/** Keys whose versions are read in one command; each has a few. */
const MOST_KEYS = 200

export function openKeys(database: Database): Pick<Store, Verbs> {
  const keys = database.collection<Stored<KeyVersion>>('keys')
  const nounOrNull = (found: Stored<KeyVersion> | null) => (found ? nounOf<KeyVersion>(found) : null)
  const list = async (found: Promise<Stored<KeyVersion>[]>) => (await found).map(nounOf<KeyVersion>)

  async function mintKey(key: KeyVersion): ReturnType<Store['mintKey']> {
    if ((await add(keys, stored(key))) === 'added') return { outcome: 'created', key }
    const existing = nounOrNull(await keys.findOne({ keyId: key.keyId, revision: key.revision }))
    if (!existing) throw new Unavailable('store', new Error('another key has the same hash'))
    return { outcome: 'existing', key: existing }
  }

  async function setKey(id: string, change: KeyChange, tell: string[]): Promise<KeyVersion | null> {
    const from = change.state === undefined ? {} : { state: { $in: mayBecome(change.state) } }
    const update = {
      ...(Object.keys(change).length > 0 && { $set: change }),
      ...(tell.length > 0 && { $addToSet: { tell: { $each: tell } } }),
    }
    const changed = Object.keys(update).length > 0 && (await keys.findOneAndUpdate({ _id: id, ...from }, update, { returnDocument: 'after' }))
    return nounOrNull(changed || (await keys.findOne({ _id: id })))
  }

  async function forgetSealed(before: number, limit: number): Promise<number> {
    // By a controller of the release before, which goes on until that of the next one is ready.
    await keys.updateMany({ ...UNTOLD, sealed: { $gt: '' } }, { $set: { endedAt: Date.now() } })
    const ended = await keys.find({ endedAt: { $gt: 0, $lt: before }, sealed: { $gt: '' }, tell: { $size: 0 } }, { projection: { _id: 1 } }).sort({ endedAt: 1 }).limit(limit).toArray()
    if (ended.length > 0) await keys.updateMany({ _id: { $in: ended.map(({ _id }) => _id) } }, { $set: { sealed: null } })
    return ended.length
  }

  const keyOf = batchReads(keys, 'hash')
  // Thousands of keys that are looked at after a start would cost the server as many commands.
  const versionsOf = createBatcher<string, KeyVersion[]>({
    backend: 'store',
    async send(keyIds) {
      const found = await list(keys.find({ keyId: { $in: [...new Set(keyIds)] } }).sort({ keyId: 1, revision: -1 }).toArray())
      const versions = Map.groupBy(found, ({ keyId }) => keyId)
      return keyIds.map((keyId) => ({ answer: versions.get(keyId) ?? [] }))
    },
    idOf: (keyId) => keyId,
    shares: true,
    most: MOST_KEYS,
  })

  return {
    mintKey: (key) => database.ask(() => mintKey(key)),
    setKey: (id, change, tell) => database.ask(() => setKey(id, change, tell)),
    told: async (id, subscriptions) => {
      await database.ask(() => keys.updateOne({ _id: id }, { $pullAll: { tell: subscriptions } }))
    },
    keysToTell: (limit) => database.ask(() => list(keys.find({ tell: { $gte: '' } }).limit(limit).toArray())),
    findKey: (hash) => database.ask(async () => nounOrNull(await keyOf(hash))),
    keyVersions: (keyId) => database.ask(() => versionsOf(keyId)),
    keysAlive: (after, limit) =>
      database.ask(() => list(keys.find({ state: { $in: ALIVE }, _id: { $gt: after } }).sort({ _id: 1 }).limit(limit).toArray())),
    keysOf: (subscription) =>
      database.ask(() => list(keys.find({ subscription, state: { $in: ALIVE } }).sort({ _id: 1 }).toArray())),
    forgetSealed: (before, limit) => database.ask(() => forgetSealed(before, limit)),
  }
}

/** The states that may become this one: a revoked version can only be deleted, and a deleted one stays deleted. */
function mayBecome(state: KeyState): KeyState[] {
  if (state === 'deleted') return [...ALIVE, 'deleted']
  return state === 'revoked' ? ALIVE : ['pending', 'active', 'suspended']
}
