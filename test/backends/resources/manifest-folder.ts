/** A folder of manifests under a clock that the test owns: nothing happens between two looks. */
import { mkdir, readdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { openFiles, type FilesResources } from '../../../src/backends/resources/files/files.ts'
import type { Declarations, Ref } from '../../../src/backends/resources/resources.ts'
import { openStore } from '../../../src/backends/store/store.ts'

export type Line = { level: 'info' | 'warn' | 'error'; facts: object; message: string }

export type Folder = {
  plans: string
  secrets: string
  status: string
  /** Epoch milliseconds, and by how much somebody set the time of day; the test moves both. */
  time: { now: number; setBy: number }
  log: Line[]
  declarations: Declarations
  open(): Promise<FilesResources>
  write(file: string, ...documents: unknown[]): Promise<void>
}

/** Two looks to take a change over, then past the time after which what is gone is deleted and Secrets are looked at. */
export async function settle(resources: FilesResources, { time }: Pick<Folder, 'time'>): Promise<void> {
  for (const ms of [0, 1, 2_000, 0, 10_000]) {
    time.now += ms
    await resources.look()
  }
}

export async function openFolder(t: Test, declarations?: Declarations): Promise<Folder> {
  const root = t.testdir({ plans: {} })
  const plans = join(root, 'plans')
  const dataDir = join(root, 'data')
  const time = { now: Date.UTC(2026, 0, 5), setBy: 0 }
  const log: Line[] = []
  const say = (level: Line['level']) => (facts: object, message: string) => void log.push({ level, facts, message })
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
      const config = { url: `files:${plans}`, dataDir, declarations: store, log: { info: say('info'), warn: say('warn'), error: say('error') } }
      const resources = await openFiles(config, { clock: () => time.now + time.setBy, uptime: () => time.now, newUid: () => `uid-${++uids}`, isAutomatic: false })
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

/** Opens what a folder declares, and follows it. */
export async function follow(folder: Folder) {
  const resources = await folder.open()
  const told: string[] = []
  await resources.watch(({ kind, name }) => told.push(`${kind} ${name}`))
  /** Looks twice, `ms` apart: enough to take a change over, not to delete. */
  const look = async (ms = 100) => {
    await resources.look()
    folder.time.now += ms
    await resources.look()
  }
  return { resources, told, look }
}

export const warned = ({ log }: Folder) => log.filter(({ level }) => level === 'warn').map(({ message }) => message)
