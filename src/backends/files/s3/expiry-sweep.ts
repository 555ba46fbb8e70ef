/**
 * Expiry sweep of files in S3, without a database. Before each file, an empty object `expires/<16 digits of epoch ms>-<id>` is written: S3
 * lists keys in order, so a list of `expires/` begins with the expired files. The entry is an index only; the metadata of the file decide.
 * An entry whose file is missing or was rewritten with a later expiry is dropped.
 */
import { Unavailable } from '../../../domain/errors.ts'
import { isFileId, type FileFacts } from '../files.ts'
import type { S3Address } from './s3-url.ts'
import { element, elements, errorOf, type S3Client, type S3Request } from './s3-client.ts'

/** An upload of this age belongs to a dead writer. */
const ABANDONED_MS = 24 * 3600 * 1000
const PAGE = 1000
const AT_ONCE = 16

/** The key of a file's expiry entry. */
export function expiryKey(id: string, expiresAt: number): string {
  return `expires/${String(Math.max(0, Math.ceil(expiresAt))).padStart(16, '0')}-${id}`
}

/** Keys below `folder` after `after`, in order, both without the folder. Returns at most 1,000. */
export async function listKeys(
  s3: S3Client,
  { prefix }: S3Address,
  folder: string,
  after: string,
  limit: number,
): Promise<{ names: string[]; more: boolean }> {
  const query = {
    'list-type': '2',
    prefix: `${prefix}${folder}`,
    'max-keys': String(Math.min(limit, PAGE)),
    ...(after && { 'start-after': `${prefix}${folder}${after}` }),
  }
  const { text } = await s3.demand({ method: 'GET', query, answer: 'xml' })
  const names = elements(text, 'Key').map((key) => key.slice(prefix.length + folder.length))
  return { names, more: names.length > 0 && element(text, 'IsTruncated') === 'true' }
}

export type Due = {
  s3: S3Client
  address: S3Address
  stat(id: string): Promise<FileFacts | null>
  remove(id: string): Promise<void>
}

/** Removes up to `limit` files that expired by `now`. Returns their number. */
export async function sweepDue({ s3, address, stat, remove }: Due, now: number, limit: number): Promise<number> {
  let removed = 0
  const settle = async (entry: string): Promise<void> => {
    const id = entry.slice(17)
    const facts = await stat(id)
    const due = facts !== null && facts.expiresAt <= now
    if (due) await remove(id)
    await s3.demand({ method: 'DELETE', key: `expires/${entry}` })
    if (due) removed++
  }
  for (let after = ''; removed < limit;) {
    const { names, more } = await listKeys(s3, address, 'expires/', after, limit - removed)
    // Objects of other programs are ignored.
    const entries = names.filter((name) => /^\d{16}-/.test(name) && isFileId(name.slice(17)))
    const due = entries.filter((entry) => Number(entry.slice(0, 16)) <= now)
    for (let at = 0; at < due.length; at += AT_ONCE) await Promise.all(due.slice(at, at + AT_ONCE).map(settle))
    if (!more || due.length < entries.length) break
    after = names.at(-1) ?? ''
  }
  return removed
}

/** Aborts multipart uploads that began a day before `now` and are not in progress in this process (`under`): S3 keeps their parts for ever. */
export async function sweepUploads(s3: S3Client, { prefix }: S3Address, now: number, under: Set<string>): Promise<void> {
  const request: S3Request = { method: 'GET', query: { uploads: '', prefix: `${prefix}files/` }, answer: 'xml' }
  const answer = await s3.call(request)
  // Some servers cannot list uploads; they rely on their own clean-up.
  if (answer.outcome === 'refused' && answer.status === 501) return
  if (answer.outcome === 'refused') throw new Unavailable('files', errorOf(request, answer))
  for (const found of answer.text.matchAll(/<Upload>.*?<\/Upload>/gs)) {
    const [key, uploadId, initiated] = ['Key', 'UploadId', 'Initiated'].map((name) => element(found[0], name)) as [string, string, string]
    if (!key.startsWith(`${prefix}files/`) || under.has(uploadId) || !(Date.parse(initiated) < now - ABANDONED_MS)) continue
    // Another process may abort it at the same time.
    await s3.call({ method: 'DELETE', key: key.slice(prefix.length), query: { uploadId } })
  }
}
