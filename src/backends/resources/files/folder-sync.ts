/** One look at the folder: takes over what changed, deletes what went, says what is wrong, and looks whether somebody touched our Secrets. */
import { Unavailable } from '../../../domain/errors.ts'
import type { Ref, Resources, ResourcesConfig } from '../resources.ts'
import type { Declared } from './declared-resources.ts'
import { openFolder, type ManifestFile } from './folder-scan.ts'
import type { Refusals } from './manifest-errors.ts'
import type { Secrets } from './secret-files.ts'
import type { Statuses } from './status-files.ts'

export type FolderSync = {
  /** Resolves to when to look again, in ms. Does not reject: what is wrong is in the log and in `health`. */
  look(): Promise<number>
  health: Resources['health']
}

type Options = {
  path: string
  declared: Declared
  secrets: Secrets
  statuses: Statuses
  refusals: Refusals
  clock: () => number
  uptime: () => number
  log: ResourcesConfig['log']
  changed: (ref: Ref) => void
}

const POLL_MS = 500
/** A file still changes, or a deletion is due. */
const SOON_MS = 50
const SHOWN_PROBLEMS = 3

export function openFolderSync({ path, declared, secrets, statuses, refusals, clock, uptime, log, changed }: Options): FolderSync {
  const folder = openFolder(path)
  let taken: ManifestFile[] | null = null
  let problem: string | null = null
  let hasLooked = false
  let isCleaned = false

  async function look(): Promise<{ problem: string | null; nextMs: number }> {
    const seen = await folder.look()
    if (seen.outcome === 'unreadable') {
      declared.pause()
      return { problem: seen.reason, nextMs: POLL_MS }
    }
    if (!isSameAs(taken, seen.files) || declared.isWaiting()) {
      taken = null
      await declared.take(seen.files, clock(), uptime())
      await refusals.show(declared.troubles(), (ref) => declared.get(ref) !== null, clock())
      taken = seen.files
    }
    if (!isCleaned && !declared.isWaiting() && declared.troubles().length === 0) await clean()
    for (const ref of secrets.tampered(uptime())) changed(ref)
    return { problem: null, nextMs: seen.isSettled && !declared.isWaiting() ? POLL_MS : SOON_MS }
  }

  /** What belongs to nobody any more: its owner went while we were away. */
  async function clean(): Promise<void> {
    const uids = new Set(declared.all().map(({ metadata }) => metadata.uid))
    for (const { uid } of secrets.owners()) if (!uids.has(uid)) await secrets.remove(uid)
    for (const ref of await statuses.all()) if (!declared.get(ref)) await statuses.remove(ref)
    isCleaned = true
  }

  function found(next: string | null, err?: unknown): void {
    if (next !== null && next !== problem) log.error({ folder: path, err }, next)
    if (next === null && problem !== null) log.info({ folder: path }, 'the manifests are read again')
    problem = next
    hasLooked = true
  }

  return {
    async look() {
      try {
        const seen = await look()
        found(seen.problem)
        return seen.nextMs
      } catch (err) {
        found(`changes of the manifests wait: ${err instanceof Unavailable ? err.message : 'DATA_DIR cannot be written'}`, err)
        return POLL_MS
      }
    },
    health() {
      const troubles = declared.troubles().map(({ file, message }) => `${file}: ${message}`)
      return { ok: hasLooked && problem === null, detail: detailOf(hasLooked ? problem : 'the manifests were not read yet', troubles) }
    },
  }
}

function isSameAs(before: ManifestFile[] | null, now: ManifestFile[]): boolean {
  return before?.length === now.length && now.every(({ name, parsed }, i) => before[i]?.name === name && before[i].parsed === parsed)
}

function detailOf(problem: string | null, troubles: string[]): string {
  const all = [...(problem === null ? [] : [problem]), ...troubles]
  const more = all.length - SHOWN_PROBLEMS
  return all.length === 0 ? 'the manifests are read' : `${all.slice(0, SHOWN_PROBLEMS).join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}
