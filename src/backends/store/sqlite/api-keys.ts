/** API key versions in SQLite: JSON records with the columns that indexes use. */
import type { KeyState, KeyVersion } from '../../../domain/api-keys.ts'
import { idRange, NEWEST, withOlder, type KeyVerbs } from '../key-versions.ts'
import type { Database } from './database.ts'

export const keyTables = `
  CREATE TABLE keys (
    id TEXT PRIMARY KEY,
    key_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    subscription TEXT NOT NULL,
    alive INTEGER NOT NULL,
    to_tell INTEGER NOT NULL,
    record TEXT NOT NULL,
    -- When it ended, while its sealed key is there and nobody must still learn of it.
    ended_at INTEGER,
    UNIQUE (key_id, revision)
  ) STRICT;
  CREATE INDEX keys_alive ON keys (id) WHERE alive = 1;
  CREATE INDEX keys_of ON keys (subscription, id) WHERE alive = 1;
  CREATE INDEX keys_to_tell ON keys (id) WHERE to_tell = 1;
  CREATE INDEX keys_ended ON keys (ended_at) WHERE ended_at IS NOT NULL;
`

export function openKeys(database: Database): KeyVerbs {
  const insert = database.prepare(
    `INSERT INTO keys (key_id, revision, hash, subscription, alive, to_tell, ended_at, record, id) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
     ON CONFLICT (key_id, revision) DO NOTHING`,
  )
  const update = database.prepare('UPDATE keys SET subscription = ?, alive = ?, to_tell = ?, ended_at = ?, record = ? WHERE id = ?')
  const use = database.prepare(
    "UPDATE keys SET record = json_set(record, '$.lastUsedAt', ?2) WHERE id = ?1 AND ifnull(json_extract(record, '$.lastUsedAt'), 0) < ?2",
  )
  const byId = database.records<KeyVersion>('SELECT record FROM keys WHERE id = ?')
  const byRevision = database.records<KeyVersion>('SELECT record FROM keys WHERE key_id = ? AND revision = ?')
  const byHash = database.records<KeyVersion>('SELECT record FROM keys WHERE hash = ?')
  const toTell = database.records<KeyVersion>('SELECT record FROM keys WHERE to_tell = 1 ORDER BY id LIMIT ?')
  const newest = database.records<KeyVersion>(`SELECT record FROM keys WHERE key_id = ? ORDER BY revision DESC LIMIT ${NEWEST}`)
  // `+` keeps SQLite from reading all versions of the key by its other index.
  const aliveOf = database.records<KeyVersion>('SELECT record FROM keys WHERE alive = 1 AND id > ? AND id < ? AND +key_id = ?')
  const alive = database.records<KeyVersion>('SELECT record FROM keys WHERE alive = 1 AND id > ? ORDER BY id LIMIT ?')
  const ended = database.prepare<{ id: string }>('SELECT id FROM keys WHERE ended_at < ? ORDER BY ended_at LIMIT ?')
  const ofSubscription = database.records<KeyVersion>('SELECT record FROM keys WHERE alive = 1 AND subscription = ? ORDER BY id')

  /** Read-modify-write in one transaction. */
  function edit(id: string, next: (key: KeyVersion) => KeyVersion): Promise<KeyVersion | null> {
    return database.write(() => {
      const found = byId.get(id)
      if (!found) return null
      const key = next(found)
      update.run(key.subscription, ...flags(key), JSON.stringify(key), id)
      return key
    })
  }

  return {
    mintKey: (key) =>
      database.write(() => {
        const created = insert.run(key.keyId, key.revision, key.hash, key.subscription, ...flags(key), JSON.stringify(key), key.id)
        const stored = created ? null : byRevision.get(key.keyId, key.revision)
        return stored ? { outcome: 'existing', key: stored } : { outcome: 'created', key }
      }),
    setKey: (id, change, tell) =>
      edit(id, (key) => {
        if (finality(change.state ?? key.state) < finality(key.state)) return key
        return { ...key, ...change, tell: [...new Set([...key.tell, ...tell])] }
      }),
    told: async (id, subscriptions) => {
      await edit(id, (key) => ({ ...key, tell: key.tell.filter((one) => !subscriptions.includes(one)) }))
    },
    keysUsed: (uses) =>
      database.write(() => {
        for (const { id, at } of uses) use.run(id, at)
      }),
    keysToTell: (limit) => database.read(() => toTell.all(limit)),
    findKey: (hash) => database.read(() => byHash.get(hash)),
    keyVersion: (id) => database.read(() => byId.get(id)),
    keyVersions: (keyId) =>
      database.read(() => {
        const found = newest.all(keyId)
        return found.length < NEWEST ? found : withOlder(found, aliveOf.all(...idRange(keyId), keyId))
      }),
    keysAlive: (after, limit) => database.read(() => alive.all(after, limit)),
    keysOf: (subscription) => database.read(() => ofSubscription.all(subscription)),
    forgetSealed: async (before, limit) => {
      const ids = await database.read(() => ended.all(before, limit))
      for (const { id } of ids) await edit(id, (key) => ({ ...key, sealed: null }))
      return ids.length
    },
  }
}

/** Order of the states: a version never returns to a state of a lower number. */
function finality(state: KeyState): number {
  if (state === 'deleted') return 2
  return state === 'revoked' ? 1 : 0
}

/** `alive`, `to_tell` and `ended_at`. */
function flags({ state, tell, endedAt, sealed }: KeyVersion): [number, number, number | null] {
  return [Number(state !== 'deleted'), Number(tell.length > 0), sealed === null || tell.length > 0 ? null : endedAt]
}
