/** Finished generations and operations by time, page by page. */
import { isKept, listTasks, type Filter, type KINDS, type Task } from '../api/tasks.ts'

export type GalleryPages = { shown: Task[]; hasMore: boolean; next(): Promise<GalleryPages> }
/** What is shown: everything, one kind of generation, or the operations. */
export type Shown = 'all' | (typeof KINDS)[number] | 'edits'

const PAGE = 12

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
      const query = { ...filter, limit: PAGE, ...(cursor === null ? {} : { cursor }) }
      const page = await listTasks(query, new AbortController().signal)
      const kept = page.data.filter(isKept)
      // Where a whole page was removed, so was what is older.
      return pagesOf([...shown, ...kept], filter, page.next_cursor, page.has_more && kept.length > 0)
    },
  }
}
