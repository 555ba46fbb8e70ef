/** Ids of uploads in the files backend: they hold owner, expiry and size, so that a list of ids is enough to count what a tenant has. */
import type { Files } from '../../src/backends/files/files.ts'

const PAGE = 500

/** `upload-<group>-<expiry>-<bytes>-<uuid>`: a group's uploads lie together, the first to expire first. `expiresAt` is epoch milliseconds. */
export function uploadId(group: string, { expiresAt, bytes }: { expiresAt: number; bytes: number }, uuid: string): string {
  return `upload-${group}-${Math.floor(expiresAt / 1000)
    .toString(36)
    .padStart(7, '0')}-${bytes.toString(36)}-${uuid.replaceAll('-', '')}`
}

/** Number and bytes of a group's uploads that have not expired at `now`, and when the first does; it stops above `countMax`. */
export async function readUploads(
  files: Pick<Files, 'list'>,
  group: string,
  now: number,
  countMax: number,
): Promise<{ count: number; bytes: number; firstExpiresAt: number | null }> {
  const found = { count: 0, bytes: 0, firstExpiresAt: null as number | null }
  // Ids that sort before expire before `now`.
  let after = `upload-${group}-${Math.floor(now / 1000)
    .toString(36)
    .padStart(7, '0')}-zzzzzzz`
  while (found.count <= countMax) {
    const ids = await files.list(after, PAGE)
    for (const id of ids) {
      const [, owner, expiry = '', bytes = ''] = id.split('-')
      if (!id.startsWith('upload-') || owner !== group) return found
      found.count++
      found.bytes += parseInt(bytes, 36)
      found.firstExpiresAt ??= parseInt(expiry, 36) * 1000
    }
    if (ids.length < PAGE) return found
    after = ids.at(-1) ?? after
  }
  return found
}
