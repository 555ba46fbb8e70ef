/** Finished generations and operations by time, page by page. */
import { isKept, listTasks, type Filter, type KINDS, type Task } from '../api/tasks.ts'

export type GalleryPages = { shown: Task[]; hasMore: boolean; next(): Promise<GalleryPages> }
/** What is shown: everything, one kind of generation, or the operations. */
export type Shown = 'all' | (typeof KINDS)[number] | 'edits'

const PAGE = 12
/** Pages read for one that shows something: results were deleted, or have expired like all older ones. */
const EMPTY_PAGES_MAX = 5

/** The newest, at least `count` where there are as many: a gallery that is read again keeps its length. */
export async function readGallery(shown: Shown, count: number): Promise<GalleryPages> {
  const filter: Filter = shown === 'all' ? {} : shown === 'edits' ? { object: 'operation' } : { kind: shown }
  let pages = await pagesOf([], { ...filter, status: 'completed' }, null).next()
  while (pages.shown.length < count && pages.hasMore) pages = await pages.next()
  return pages
}

function pagesOf(shown: Task[], filter: Filter, cursor: string | null, hasMore = true): GalleryPages {
  return {
    shown,
    hasMore,
    async next() {
      let after = cursor
      for (let read = 1; ; read++) {
        const query = { ...filter, limit: PAGE, ...(after === null ? {} : { cursor: after }) }
        const page = await listTasks(query, new AbortController().signal)
        const kept = page.data.filter(isKept)
        if (kept.length > 0 || !page.has_more) return pagesOf([...shown, ...kept], filter, page.next_cursor, page.has_more)
        if (read === EMPTY_PAGES_MAX) return pagesOf(shown, filter, page.next_cursor, false)
        after = page.next_cursor
      }
    },
  }
}
