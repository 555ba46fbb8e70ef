/** Pages of rows whose size clients choose: a request for 100 could otherwise have tens of megabytes for an answer. */

/** Of the rows of a page, which has at least one. */
const PAGE_BYTES = 1024 * 1024
/** Rows that are read at first, and twice as many each time: of large ones, few more than the page takes. */
const FIRST_BATCH = 8

/** The rows of a page, fewer than `limit` if they are large, and whether more follow. `read` returns up to `count` rows after the last one. */
export async function readPage<T>(
  limit: number,
  read: (last: T | null, count: number) => Promise<T[]>,
): Promise<{ rows: T[]; isMore: boolean }> {
  const rows: T[] = []
  let bytes = 0
  for (let batch = FIRST_BATCH; ; batch *= 2) {
    const count = Math.min(batch, limit - rows.length)
    const found = await read(rows.at(-1) ?? null, count + 1)
    for (const row of found.slice(0, count)) {
      bytes += Buffer.byteLength(JSON.stringify(row))
      if (bytes > PAGE_BYTES && rows.length > 0) return { rows, isMore: true }
      rows.push(row)
    }
    if (found.length <= count || rows.length === limit) return { rows, isMore: found.length > count }
  }
}
