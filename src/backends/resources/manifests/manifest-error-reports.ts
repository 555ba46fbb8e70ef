/** Reports manifest errors, once each: in the log, and as the condition `ManifestAccepted` of the resource that a refused document names. */
import type { Ref, ResourcesConfig } from '../resources.ts'
import { keyOf, type ManifestError } from './manifest-index.ts'
import type { Refusal, Statuses } from './status-files.ts'

export type ManifestErrorReports = {
  /** Replaces the reported errors by `errors`. `isDeclared` returns whether a resource has an accepted document in force. */
  report(errors: ManifestError[], isDeclared: (ref: Ref) => boolean, now: number): Promise<void>
  /** Why the newest document of a resource was refused, or null if it was accepted. */
  of(ref: Ref): Refusal | null
}

export function openManifestErrorReports(statuses: Statuses, log: ResourcesConfig['log']): ManifestErrorReports {
  let logged = new Map<string, ManifestError>()
  let refused = new Map<string, { ref: Ref; refusal: Refusal }>()
  /** What the statuses have. It differs from `refused` after a write that failed, which the next report repeats. */
  const written: typeof refused = new Map()

  function logChanges(errors: ManifestError[]): void {
    const next = new Map(errors.map((error) => [`${error.file}: ${error.message}`, error]))
    for (const [key, { file, message }] of next)
      if (!logged.has(key))
        log.warn({ event: 'manifest_refused', file, reason: message }, 'manifest refused; the last accepted one stays in force')
    for (const [key, { file, message }] of logged)
      if (!next.has(key)) log.info({ event: 'manifest_error_resolved', file, reason: message }, 'manifest error resolved')
    logged = next
  }

  return {
    async report(errors, isDeclared, now) {
      logChanges(errors)
      const before = refused
      refused = new Map()
      for (const { ref, file, message } of errors) {
        if (ref)
          refused.set(keyOf(ref), { ref, refusal: { message: `${file}: ${message}`, since: before.get(keyOf(ref))?.refusal.since ?? now } })
      }
      for (const [key, { ref, refusal }] of refused) {
        if (written.get(key)?.refusal.message === refusal.message) continue
        await statuses.put(ref, await statuses.get(ref), refusal)
        written.set(key, { ref, refusal })
      }
      for (const [key, { ref }] of written) {
        if (refused.has(key)) continue
        const status = isDeclared(ref) ? await statuses.get(ref) : null
        if (status) await statuses.put(ref, status, null)
        else await statuses.remove(ref)
        written.delete(key)
      }
    },
    of: (ref) => refused.get(keyOf(ref))?.refusal ?? null,
  }
}
