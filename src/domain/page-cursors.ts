/** Cursors of lists: the position where a page ended, in a text that clients pass back as it is. */
import { invalid } from './request-validation.ts'

export const writeCursor = (position: string): string => Buffer.from(position).toString('base64url')

/** The groups of `form` in the position. Throws `invalid_request` for a cursor that no list returned; `part` as for `invalid`. */
export function readCursor(cursor: string, form: RegExp, part?: 'query parameter'): string[] {
  const position = Buffer.from(cursor, 'base64url').toString()
  const [, ...groups] = form.exec(position) ?? []
  if (groups.length > 0 && writeCursor(position) === cursor) return groups
  throw invalid(
    [{ path: '/cursor', code: 'format', message: 'must be the next_cursor of an earlier page; leave it out to begin with the first page' }],
    part,
  )
}
