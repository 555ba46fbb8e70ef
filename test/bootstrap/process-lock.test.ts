/** One process per data folder and per store file. */
import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import pino from 'pino'
import { Registry } from 'prom-client'
import t from 'tap'
import { UPGRADES } from '../../src/backends/store/sqlite/migrations.ts'
import { openBackends } from '../../src/bootstrap/open-backends.ts'
import { lock } from '../../src/bootstrap/process-lock.ts'
import { readConfig } from '../../src/config/config.ts'

t.test('a lock that is refused names the reason', async (t) => {
  const folder = t.testdir({ other: 'no database, but longer than the header of one: '.repeat(4) })
  await t.rejects(lock(`${folder}/other`, 'DATA_DIR', folder), { message: /^DATA_DIR was .*; it must be one whose files can be written and locked \(file is not a database\)\.$/ })
  const first = await lock(`${folder}/lock`, 'DATA_DIR', folder)
  await t.rejects(lock(`${folder}/lock`, 'DATA_DIR', folder), { message: /one that no other running program uses/ })
  await first.close()
})

t.test('a store that another process uses is not migrated', async (t) => {
  const folder = t.testdir()
  const file = join(folder, 'store', 'store.db')
  const start = (dataDir: string) => {
    const { config } = readConfig({ DATA_DIR: join(folder, dataDir), STORE_URL: `sqlite:${file}`, RESOURCES_URL: `files:${folder}` })
    return openBackends({ config, log: pino({ level: 'silent' }), registry: new Registry(), wall: Date.now }, (_name, open) => open())
  }
  const first = await start('one')
  const earlier = new DatabaseSync(file)
  earlier.prepare(`UPDATE meta SET value = ? WHERE name = 'schema'`).run(String(UPGRADES.length - 1))
  await t.rejects(start('other'), { message: /^STORE_URL was .*; it must be one that no other running program uses/ })
  t.match(earlier.prepare('SELECT value FROM meta').get(), { value: String(UPGRADES.length - 1) })
  earlier.close()
  await first.close()
})
