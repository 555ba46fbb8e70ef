/** Conditional and range requests: If-None-Match, Range, If-Range (RFC 9110, sections 13 and 14). Pure. */

/** True when If-None-Match contains this entity tag, weakly compared, or `*`: the client has the file already. */
export function clientHasIt(ifNoneMatch: string | undefined, etag: string): boolean {
  if (ifNoneMatch === undefined) return false
  return ifNoneMatch.split(',').some((entry) => entry.trim() === '*' || entry.trim().replace(/^W\//, '') === etag)
}

/**
 * The single range of a request, `unsatisfiable` when it lies outside the file, or null for the whole file: without Range, with an invalid
 * one or another unit than bytes, with several ranges, or when If-Range has another entity tag.
 */
export function rangeOf(
  range: string | undefined,
  ifRange: string | string[] | undefined,
  etag: string,
  size: number,
): { start: number; end: number } | 'unsatisfiable' | null {
  // Only a strong entity tag can match: files have no Last-Modified to compare a date with.
  if (range === undefined || (ifRange !== undefined && ifRange !== etag)) return null
  const [, first = '', last = ''] = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(range) ?? []
  if (first === '' && last === '') return null
  if (first === '') return Number(last) === 0 || size === 0 ? 'unsatisfiable' : { start: Math.max(0, size - Number(last)), end: size - 1 }
  const start = Number(first)
  if (last !== '' && Number(last) < start) return null
  return start >= size ? 'unsatisfiable' : { start, end: last === '' ? size - 1 : Math.min(Number(last), size - 1) }
}
