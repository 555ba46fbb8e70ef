/** Ids of uploads in the files backend: they hold owner, expiry and size, so that a list of ids is enough to count what a tenant has. */
import type { Files } from '../backends/files/files.ts'

const PAGE = 500

/** `upload-<owner>-<expiry>-<bytes>-<uuid>`: an owner's uploads lie together, the first to expire first. `expiresAt` is epoch milliseconds. */
export function uploadId(owner: string, { expiresAt, bytes }: { expiresAt: number; bytes: number }, uuid: string): string {
  return `upload-${owner}-${Math.floor(expiresAt / 1000)
    .toString(36)
    .padStart(7, '0')}-${bytes.toString(36)}-${uuid.replaceAll('-', '')}`
}

/** The owner in the id of an upload; null for another file. */
export function ownerOf(id: string): string | null {
  return /^upload-([0-9a-f]+)-[0-9a-z]+-[0-9a-z]+-[0-9a-f]+$/.exec(id)?.[1] ?? null
}

/** Number and bytes of an owner's uploads that have not expired at `now`, and when the first does; it stops above `countMax`. */
export async function readUploads(
  files: Pick<Files, 'list'>,
  owner: string,
  now: number,
  countMax: number,
): Promise<{ count: number; bytes: number; firstExpiresAt: number | null }> {
  const found = { count: 0, bytes: 0, firstExpiresAt: null as number | null }
  // Ids that sort before expire before `now`.
  let after = `upload-${owner}-${Math.floor(now / 1000)
    .toString(36)
    .padStart(7, '0')}-zzzzzzz`
  while (found.count <= countMax) {
    const ids = await files.list(after, PAGE)
    for (const id of ids) {
      if (ownerOf(id) !== owner) return found
      const [, , expiry = '', bytes = ''] = id.split('-')
      found.count++
      found.bytes += parseInt(bytes, 36)
      found.firstExpiresAt ??= parseInt(expiry, 36) * 1000
    }
    if (ids.length < PAGE) return found
    after = ids.at(-1) ?? after
  }
  return found
}
