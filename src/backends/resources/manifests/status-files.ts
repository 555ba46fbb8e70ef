/** Status as files, `<namespace>/<kind>/<name>.yaml`, with the content that `kubectl get -o yaml` would show under `status`. */
import { readdir, readFile, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { parse, stringify } from 'yaml'
import type { ApiKeyStatus, Condition, Kind, PlanStatus, Ref } from '../resources.ts'
import { putFile, TEMPORARY } from './atomic-write.ts'

type Status = PlanStatus | ApiKeyStatus

/** Why the newest manifest of a resource is not the one in force. */
export type Refusal = { message: string; since: number }

export type Statuses = {
  /** Writes the status if it differs from the present one. `refusal` becomes the condition `ManifestAccepted`. */
  put(ref: Ref, status: Status | null, refusal: Refusal | null): Promise<void>
  /** The status that the controller wrote, without `ManifestAccepted`. */
  get(ref: Ref): Promise<Status | null>
  remove(ref: Ref): Promise<void>
  /** Every resource with a status. Removes what an interrupted write left. */
  all(): Promise<Ref[]>
}

const REFUSED = 'ManifestAccepted'
const FOLDERS: Record<Kind, string> = { Plan: 'plan', ApiKey: 'apikey' }

export function openStatuses(folder: string): Statuses {
  const pathOf = ({ kind, namespace, name }: Ref) => join(folder, namespace, FOLDERS[kind], `${name}.yaml`)
  const read = (ref: Ref) => readFile(pathOf(ref), 'utf8').catch(() => null)

  return {
    async put(ref, status, refusal) {
      const conditions = [...(status?.conditions ?? []), ...(refusal ? [refused(refusal, status)] : [])]
      const text = stringify({ ...(status ?? { observedGeneration: 0 }), conditions })
      if (text !== (await read(ref))) await putFile(pathOf(ref), text)
    },
    async get(ref) {
      const status = parseStatus(await read(ref))
      const conditions = status?.conditions.filter(({ type }) => type !== REFUSED) ?? []
      return status && conditions.length > 0 ? { ...status, conditions } : null
    },
    async remove(ref) {
      await rm(pathOf(ref), { force: true })
    },
    async all() {
      const refs: Ref[] = []
      for (const namespace of await namesIn(folder)) {
        for (const kind of ['Plan', 'ApiKey'] as const) {
          for (const file of await namesIn(join(folder, namespace, FOLDERS[kind]))) {
            if (file.startsWith(TEMPORARY)) await rm(join(folder, namespace, FOLDERS[kind], file), { force: true })
            else if (file.endsWith('.yaml')) refs.push({ kind, namespace, name: file.slice(0, -'.yaml'.length) })
          }
        }
      }
      return refs
    },
  }
}

function refused({ message, since }: Refusal, status: Status | null): Condition {
  return {
    type: REFUSED,
    status: 'False',
    reason: 'ManifestRefused',
    message,
    observedGeneration: status?.observedGeneration ?? 0,
    lastTransitionTime: new Date(since).toISOString(),
  }
}

/** Null for a file that the controller did not write. */
function parseStatus(text: string | null): Status | null {
  try {
    const status = parse(text ?? '')
    return Array.isArray(status?.conditions) &&
      status.conditions.every((condition: unknown) => typeof condition === 'object' && condition !== null)
      ? status
      : null
  } catch {
    return null
  }
}

async function namesIn(path: string): Promise<string[]> {
  return readdir(path).catch(() => [])
}
