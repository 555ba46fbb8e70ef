/** The whole program in this process, or one role of it, over embedded backends in a separate folder, with the demo tenant of `plans/`. It does not listen. */
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { FastifyInstance } from 'fastify'
import pino from 'pino'
import { Registry } from 'prom-client'
import type { Test } from 'tap'
import { buildApp } from '../../src/app.ts'
import { openBackends } from '../../src/bootstrap/open-backends.ts'
import { embeddedPaths, readConfig } from '../../src/config/config.ts'
import type { Role } from '../../src/config/needed-backends.ts'
import { eventually } from '../flows/eventually.ts'
import { MEMORY } from '../memory-folder.ts'

export type EmbeddedProgram = {
  app: FastifyInstance
  /** The API key of the demo tenant, once its Secret exists. */
  key(secretName: 'demo-media-key' | 'demo-coding-key'): Promise<string>
}

type Options = { /** Whatever it repeats every few seconds it repeats many times a second. */ isHasty?: boolean; role?: Role; /** DERIVED_KEYS_FILE of a role that may have one. */ derivedKeysFile?: string; env?: Record<string, string>; before?: (app: FastifyInstance) => void; logged?: string[] }

const HASTE_MS = 50

/** Opens it with these settings; `before` gets the application before any plugin is loaded, `logged` every log line. Resolves when it is ready, rejects with the error that stops the start. */
export async function openEmbeddedProgram(t: Test, { isHasty = false, role = 'all', derivedKeysFile, env = {}, before = () => {}, logged }: Options = {}): Promise<EmbeddedProgram> {
  const { setInterval } = globalThis
  if (isHasty) t.intercept(globalThis, 'setInterval', { value: (run: () => void, ms: number) => setInterval(run, Math.min(ms, HASTE_MS)) })
  // Not a folder of tap, which is removed before everything is closed.
  const dataDir = await mkdtemp(join(MEMORY, 'tollgate-'))
  t.teardown(() => rm(dataDir, { recursive: true, force: true }))
  const { config } = readConfig({ DATA_DIR: dataDir, PORT: '0', RESOURCES_URL: `files:${join(import.meta.dirname, '../../plans')}`, SHUTDOWN_SECONDS: '1', ...env })
  // Split roles are refused on embedded backends, but work with them.
  const surroundings = { config: { ...config, ROLE: role, DERIVED_KEYS_FILE: derivedKeysFile ?? null }, log: logged ? pino({ level: 'trace' }, { write: (line: string) => void logged.push(line) }) : pino({ level: 'silent' }), wall: Date.now, registry: new Registry() }
  const backends = await openBackends(surroundings, (_name, open) => open())
  let app: FastifyInstance | null = null
  t.teardown(async () => {
    await app?.close()
    await backends.close()
  })
  app = buildApp(surroundings, backends)
  before(app)
  await app.ready()
  const { checks } = app
  await eventually('readiness', async () => ((await Promise.all(checks.map((check) => check()))).every(({ ok }) => ok) ? true : null))
  return {
    app,
    key: (secretName) =>
      eventually(`the Secret ${secretName}`, () => readFile(join(embeddedPaths(dataDir).secrets, 'demo', secretName, 'api-key'), 'utf8').catch(() => null)),
  }
}
