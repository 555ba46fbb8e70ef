/** Says what is wrong with the manifests, once each: in the log, and in the status of the resource that a refused document means. */
import type { Ref, ResourcesConfig } from '../resources.ts'
import { keyOf, type Trouble } from './manifest-index.ts'
import type { Refusal, Statuses } from './status-files.ts'

export type Refusals = {
  /** Takes over what is wrong now. `isDeclared` tells whether an accepted document of a resource is in force. */
  show(troubles: Trouble[], isDeclared: (ref: Ref) => boolean, now: number): Promise<void>
  /** Why the newest document of a resource is not in force, or null if it is. */
  of(ref: Ref): Refusal | null
}

export function openRefusals(statuses: Statuses, log: ResourcesConfig['log']): Refusals {
  let said = new Map<string, Trouble>()
  let refused = new Map<string, { ref: Ref; refusal: Refusal }>()

  function logNews(troubles: Trouble[]): void {
    const next = new Map(troubles.map((trouble) => [`${trouble.file}: ${trouble.message}`, trouble]))
    for (const [sentence, { file }] of next) if (!said.has(sentence)) log.warn({ file }, `manifest refused, the last good one stays: ${sentence}`)
    for (const [sentence, { file }] of said) if (!next.has(sentence)) log.info({ file }, `no longer so: ${sentence}`)
    said = next
  }

  return {
    async show(troubles, isDeclared, now) {
      logNews(troubles)
      const before = refused
      refused = new Map()
      for (const { ref, file, message } of troubles) {
        if (ref) refused.set(keyOf(ref), { ref, refusal: { message: `${file}: ${message}`, since: before.get(keyOf(ref))?.refusal.since ?? now } })
      }
      for (const [key, { ref, refusal }] of refused) {
        if (before.get(key)?.refusal.message !== refusal.message) await statuses.put(ref, await statuses.get(ref), refusal)
      }
      for (const [key, { ref }] of before) {
        if (refused.has(key)) continue
        const status = isDeclared(ref) ? await statuses.get(ref) : null
        if (status) await statuses.put(ref, status, null)
        else await statuses.remove(ref)
      }
    },
    of: (ref) => refused.get(keyOf(ref))?.refusal ?? null,
  }
}
