/** A process whose sealing keys are not those of the store. */
import { randomBytes } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import pino from 'pino'
import { Registry } from 'prom-client'
import t from 'tap'
import { buildApp } from '../../src/app.ts'
import { openBackends } from '../../src/bootstrap/open-backends.ts'
import { readConfig } from '../../src/config/config.ts'
import { mint, parseSealingKeys, seal } from '../../src/domain/api-keys.ts'
import { keyVersion } from '../contracts/store/acme.ts'

t.test('a process that opens no API key of the store says so and is not ready, and one that opens any is', async (t) => {
  const folder = t.testdir()
  const [other, own] = [randomBytes(32), randomBytes(32)].map((key) => key.toString('base64'))
  const start = async (file: string) => {
    writeFileSync(join(folder, 'sealing.key'), file)
    const logged: string[] = []
    const { config } = readConfig({ DATA_DIR: folder })
    // A controller would delete keys without a manifest.
    const surroundings = { config: { ...config, ROLE: 'dispatcher' as const }, log: pino({ level: 'error' }, { write: (line: string) => void logged.push(JSON.parse(line).event) }), registry: new Registry(), wall: Date.now }
    const backends = await openBackends(surroundings, (_name, open) => open())
    const app = buildApp(surroundings, backends)
    t.teardown(() => backends.close())
    return { logged, backends, app }
  }
  const mintBy = async (line = '', { backends }: Awaited<ReturnType<typeof start>>, id: string) => {
    const sealing = parseSealingKeys(line)
    if (sealing) await backends.store.mintKey(keyVersion(id, 0, { hash: id, sealed: seal(mint('svc', randomBytes(32)), `${id}-0`, sealing, randomBytes(12)) }))
  }
  const failing = async ({ app, backends }: Awaited<ReturnType<typeof start>>) => {
    await app.ready()
    const checks = await Promise.all(app.checks.map((check) => check()))
    await app.close()
    await backends.close()
    return checks.filter(({ name }) => name === 'sealing key')
  }
  const first = await start(`${own}\n`)
  await mintBy(other, first, 'one')
  t.same([await failing(first), first.logged], [[], []], 'a store without keys')
  const wrong = await start(`${own}\n`)
  await mintBy(own, wrong, 'two')
  t.match([await failing(wrong), wrong.logged], [[{ ok: false, detail: 'SEALING_KEY_FILE is not the file that sealed the keys of this store' }], ['sealing_key_wrong']])
  const right = await start(`${own}\n`)
  for (let n = 0; n < 120; n++) await mintBy(other, right, `a${n}`)
  t.same([await failing(right), right.logged], [[], []])
  const late = await start(`${own}\n`)
  t.same([await failing(late), late.logged], [[], []], 'after more than a hundred that it does not open')
})
