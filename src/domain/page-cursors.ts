/** Pages of lists, and their cursors: the position where a page ended, in a text that clients pass back as it is. */
import { invalid } from './request-validation.ts'

/** Of a page: clients decide how large a task is, and one that reads slowly makes the process hold its whole answer. */
const PAGE_BYTES = 1024 * 1024

/** The records of one page, from the first: at least one, and no more than have room. A cursor leads to the others. */
export function pageOf<T>(records: T[]): T[] {
  let bytes = 0
  const end = records.findIndex((record, n) => (bytes += Buffer.byteLength(JSON.stringify(record))) > PAGE_BYTES && n > 0)
  return end === -1 ? records : records.slice(0, end)
}

export const writeCursor = (position: string): string => Buffer.from(position).toString('base64url')

/** The groups of `form` in the position. Throws `invalid_request` for a cursor that no list returned; `part` as for `invalid`. */
export function readCursor(cursor: string, form: RegExp, part?: 'query parameter'): string[] {
  const position = Buffer.from(cursor, 'base64url').toString()
  const [, ...groups] = form.exec(position) ?? []
  if (groups.length > 0 && writeCursor(position) === cursor) return groups
  throw invalid([{ path: '/cursor', code: 'format', message: 'must be the next_cursor of an earlier page' }], part)
}
