/** A folder of manifests under a clock that the test controls: it is read only by calls of `sync`. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { openFiles, type FilesResources } from '../../../src/backends/resources/manifests/manifests.ts'
import type { Declarations, Ref } from '../../../src/backends/resources/resources.ts'
import { openStore } from '../../../src/backends/store/store.ts'

export type Line = { level: 'info' | 'warn' | 'error'; facts: object; message: string }

export type Folder = {
  plans: string
  secrets: string
  status: string
  /** Epoch milliseconds, and an offset of the time of day; the test moves both. */
  time: { now: number; setBy: number }
  log: Line[]
  declarations: Declarations
  open(): Promise<FilesResources>
  write(file: string, ...documents: unknown[]): Promise<void>
}

/** Two syncs to apply a change, then past the times after which missing documents are deleted and Secrets are checked. */
export async function settle(resources: FilesResources, { time }: Pick<Folder, 'time'>): Promise<void> {
  for (const ms of [0, 1, 2_000, 0, 10_000]) {
    time.now += ms
    await resources.sync()
  }
}

export async function openFolder(t: Test, declarations?: Declarations): Promise<Folder> {
  const root = t.testdir({ plans: {} })
  const plans = join(root, 'plans')
  const dataDir = join(root, 'data')
  const time = { now: Date.UTC(2026, 0, 5), setBy: 0 }
  const log: Line[] = []
  const logger = (level: Line['level']) => (facts: object, message: string) => void log.push({ level, facts, message })
  const opened: FilesResources[] = []
  const store = declarations ?? (await openStore(`sqlite:${join(root, 'tollgate.db')}`))
  let uids = 0
  t.teardown(async () => {
    for (const resources of opened) await resources.close()
    if (store !== declarations && 'close' in store) await (store.close as () => Promise<void>)()
  })
  return {
    plans,
    secrets: join(dataDir, 'secrets'),
    status: join(dataDir, 'status'),
    time,
    log,
    declarations: store,
    async open() {
      const config = { url: `files:${plans}`, dataDir, declarations: store, log: { info: logger('info'), warn: logger('warn'), error: logger('error') } }
      const resources = await openFiles(config, { clock: () => time.now + time.setBy, uptime: () => time.now, newUid: () => `uid-${++uids}`, isPolling: false })
      opened.push(resources)
      return resources
    },
    write: (file, ...documents) => writeFile(join(plans, file), documents.map((document) => (typeof document === 'string' ? document : JSON.stringify(document))).join('\n---\n')),
  }
}

/** The entries of a Secret folder, null when there is none. */
export async function entriesOf(path: string): Promise<Record<string, string> | null> {
  const names = await readdir(path).catch(() => null)
  if (names === null) return null
  return Object.fromEntries(await Promise.all(names.filter((name) => !name.startsWith('.')).sort().map(async (name) => [name, await readFile(join(path, name), 'utf8')])))
}

export async function makeForeign(path: string): Promise<void> {
  await mkdir(path, { recursive: true })
  await writeFile(join(path, 'password'), 'hunter2')
}

export const STUDIO: Ref = { kind: 'Plan', namespace: 'acme', name: 'studio' }
export const OTHER: Ref = { ...STUDIO, name: 'other' }
export const CI: Ref = { kind: 'ApiKey', namespace: 'acme', name: 'ci' }

/** Opens the source of a folder and watches it; `notified` has the resources that the watch reported. */
export async function openWatched(folder: Folder) {
  const resources = await folder.open()
  const notified: string[] = []
  await resources.watch(({ kind, name }) => notified.push(`${kind} ${name}`))
  /** Two syncs, `ms` apart: enough to apply a change, not to delete. */
  const syncTwice = async (ms = 100) => {
    await resources.sync()
    folder.time.now += ms
    await resources.sync()
  }
  return { resources, notified, syncTwice }
}

type Refused = { file: string; reason: string }

/** The warnings as `<message>: <file>: <reason>`. */
export const warned = ({ log }: Folder) =>
  log.filter(({ level }) => level === 'warn').map(({ message, facts }) => `${message}: ${(facts as Refused).file}: ${(facts as Refused).reason}`)
