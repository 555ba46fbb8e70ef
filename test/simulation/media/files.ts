/** Files of the simulation: one backend in memory for all processes, where every call is a step of the scheduler, and the sources that tenants serve. */
import { Readable } from 'node:stream'
import type { FileBody, FileFacts, Files } from '../../../src/backends/files/files.ts'
import type { Egress } from '../../../src/egress/egress.ts'
import type { Actor, Scheduler } from '../scheduler.ts'

type StoredFile = { facts: FileFacts; bytes: Buffer }

export type SimulatedFiles = {
  /** The files as one actor uses them. */
  open(actor: Actor): Files
  stored: Map<string, StoredFile>
  /** Ids whose removal was requested, whether or not it succeeded. */
  removing: Set<string>
  /** Results that vanished. */
  expired: Set<string>
  /** Addresses of sources, and when each vanishes. */
  vanishing: Map<string, number>
}

/** A PNG header of one pixel, which is all that is read of a source. */
export const PNG = Buffer.from('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==', 'base64')

export const LINKS = 'https://tollgate.test/files/'

export function openFiles(scheduler: Scheduler): SimulatedFiles {
  const stored: SimulatedFiles['stored'] = new Map()
  const removing = new Set<string>()

  function open(actor: Actor): Files {
    const step = <T>(verb: string, id: string, writes: boolean, perform: () => T): Promise<T> =>
      scheduler.step({ actor, label: `files ${verb}`, args: [id], writes, commands: [], perform: async () => perform() })
    const part = ({ bytes }: StoredFile, range?: { start: number; end: number }): Buffer => (range ? bytes.subarray(range.start, range.end + 1) : bytes)
    return {
      async put(id, body, { contentType, expiresAt }) {
        const bytes = await bytesOf(body)
        const facts = { id, size: bytes.length, contentType, expiresAt, etag: id }
        return step('put', id, true, () => (stored.set(id, { facts, bytes }), facts))
      },
      stat: (id) => step('stat', id, false, () => stored.get(id)?.facts ?? null),
      get: (id, range) =>
        step('get', id, false, () => {
          const file = stored.get(id)
          return file ? { ...file.facts, stream: Readable.from([part(file, range)]) } : null
        }),
      remove(id) {
        removing.add(id)
        return step('remove', id, true, () => void stored.delete(id))
      },
      sweep: async () => 0,
      list: async () => [...stored.keys()],
      close: async () => {},
    }
  }

  return { open, stored, removing, expired: new Set(), vanishing: new Map() }
}

async function bytesOf(body: FileBody): Promise<Buffer> {
  return body instanceof Uint8Array ? Buffer.from(body) : Buffer.concat(await Array.fromAsync(body))
}

/** The sources that tenants serve, until they vanish. */
export function sourceEgress({ vanishing }: SimulatedFiles, scheduler: Scheduler): Pick<Egress, 'request'> {
  return {
    async request({ url, sink }) {
      const isGone = scheduler.now() >= (vanishing.get(url) ?? 0)
      const reply = { outcome: 'answered', status: isGone ? 404 : 200, headers: {}, body: new Uint8Array(), durationMs: 1 } as const
      if (!isGone && sink) sink({} as never)?.end(PNG)
      return reply as unknown as Awaited<ReturnType<Egress['request']>>
    },
  }
}
