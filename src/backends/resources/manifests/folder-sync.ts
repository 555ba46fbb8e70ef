/** Syncs the folder of manifests: applies changes, deletes missing resources, reports errors, and detects edited Secrets. */
import { Unavailable } from '../../../domain/errors.ts'
import type { Ref, Resources, ResourcesConfig } from '../resources.ts'
import type { Declared } from './declared-resources.ts'
import { openFolder, type ReadFolder } from './folder-scan.ts'
import type { ManifestErrorReports } from './manifest-error-reports.ts'
import type { Secrets } from './secret-files.ts'
import type { Statuses } from './status-files.ts'

export type FolderSync = {
  /** Resolves to the ms until the next sync. Does not reject: errors are in the log and in `health`. */
  sync(): Promise<number>
  health: Resources['health']
}

type Options = {
  path: string
  declared: Declared
  secrets: Secrets
  statuses: Statuses
  errorReports: ManifestErrorReports
  clock: () => number
  uptime: () => number
  log: ResourcesConfig['log']
  changed: (ref: Ref) => void
}

const POLL_MS = 500
/** While a file is changing or a deletion is pending. */
const FAST_POLL_MS = 50
const MAX_SHOWN_PROBLEMS = 3

export function openFolderSync({ path, declared, secrets, statuses, errorReports, clock, uptime, log, changed }: Options): FolderSync {
  const folder = openFolder(path)
  let applied: ReadFolder | null = null
  let problem: string | null = null
  let hasSynced = false
  let isCleaned = false

  async function syncOnce(): Promise<{ problem: string | null; nextMs: number }> {
    const scan = await folder.scan()
    if (scan.outcome === 'unreadable') {
      declared.unreadable()
      applied = null
      return { problem: scan.reason, nextMs: POLL_MS }
    }
    if (!isSameAs(applied, scan) || declared.hasPendingDeletions()) {
      applied = null
      await declared.apply(scan, clock(), uptime())
      await errorReports.report(declared.errors(), (ref) => declared.get(ref) !== null, clock())
      applied = scan
    }
    const problem = declared.problem()
    if (!isCleaned && declared.isKnown() && !declared.hasPendingDeletions() && declared.errors().length === 0) await removeOrphans()
    for (const ref of secrets.edited(uptime())) changed(ref)
    return { problem, nextMs: scan.isStable && !declared.hasPendingDeletions() ? POLL_MS : FAST_POLL_MS }
  }

  /** Removes Secrets and statuses whose resource was deleted while the process was not running. */
  async function removeOrphans(): Promise<void> {
    const uids = new Set(declared.all().map(({ metadata }) => metadata.uid))
    for (const { uid } of secrets.owners()) if (!uids.has(uid)) await secrets.remove(uid)
    for (const ref of await statuses.all()) if (!declared.get(ref)) await statuses.remove(ref)
    isCleaned = true
  }

  function setProblem(next: string | null, err?: unknown): void {
    if (next !== null && next !== problem)
      log.error({ event: 'manifests_unavailable', folder: path, reason: next, err }, 'manifest sync failed')
    if (next === null && problem !== null) log.info({ event: 'manifests_recovered', folder: path }, 'manifest sync recovered')
    problem = next
    hasSynced = true
  }

  return {
    async sync() {
      try {
        const { problem, nextMs } = await syncOnce()
        setProblem(problem)
        return nextMs
      } catch (err) {
        setProblem(
          `changes of the manifests cannot be applied: ${err instanceof Unavailable ? err.message : 'DATA_DIR cannot be read or written'}`,
          err,
        )
        return POLL_MS
      }
    },
    health() {
      const errors = declared.errors().map(({ file, message }) => `${file}: ${message}`)
      const detail = detailOf(hasSynced ? problem : 'the manifests were not read yet', errors)
      return { ok: hasSynced && problem === null, detail, refused: errors.length }
    },
  }
}

function isSameAs(before: ReadFolder | null, { id, files }: ReadFolder): boolean {
  return (
    before?.id === id &&
    before.files.length === files.length &&
    files.every(({ name, parsed }, i) => before.files[i]?.name === name && before.files[i].parsed === parsed)
  )
}

function detailOf(problem: string | null, errors: string[]): string {
  const all = [...(problem === null ? [] : [problem]), ...errors]
  const more = all.length - MAX_SHOWN_PROBLEMS
  return all.length === 0 ? 'manifests loaded' : `${all.slice(0, MAX_SHOWN_PROBLEMS).join('; ')}${more > 0 ? `; and ${more} more` : ''}`
}
