/** Finished generations and operations as one list by time, from two lists that are read page by page. */
import { isKept, listTasks, type KINDS, type Collection, type Filter, type Task } from '../api/tasks.ts'

export type GalleryPages = { shown: Task[]; hasMore: boolean; next(): Promise<GalleryPages> }

/** What is shown: everything, one kind of generation, or the operations. */
export type Shown = 'all' | (typeof KINDS)[number] | 'edits'

type Part = { collection: Collection; filter: Filter; waiting: Task[]; cursor: string | null; isOver: boolean }

const PAGE = 12

/** The newest, at least `count` where there are as many: a gallery that is read again keeps its length. */
export async function readGallery(shown: Shown, count: number): Promise<GalleryPages> {
  const generations = part('generations', shown === 'all' ? {} : { kind: shown })
  const parts = shown === 'all' ? [generations, part('operations')] : [shown === 'edits' ? part('operations') : generations]
  let pages = await pagesOf([], parts).next()
  while (pages.shown.length < count && pages.hasMore) pages = await pages.next()
  return pages
}

function part(collection: Collection, filter: Filter = {}): Part {
  return { collection, filter, waiting: [], cursor: null, isOver: false }
}

function pagesOf(shown: Task[], parts: Part[]): GalleryPages {
  return {
    shown,
    hasMore: parts.some(({ waiting, isOver }) => waiting.length > 0 || !isOver),
    async next() {
      const filled = await Promise.all(parts.map(fill))
      const more: Task[] = []
      // A list that is not over and has nothing left could hold the next task: it is filled again by the next call.
      while (
        more.length < PAGE &&
        filled.some(({ waiting }) => waiting.length > 0) &&
        filled.every(({ waiting, isOver }) => waiting.length > 0 || isOver)
      ) {
        const newest = filled.reduce((a, b) => ((a.waiting[0]?.created_at ?? '') >= (b.waiting[0]?.created_at ?? '') ? a : b))
        const task = newest.waiting.shift()
        if (task) more.push(task)
      }
      return pagesOf([...shown, ...more], filled)
    },
  }
}

/** A copy of a part with at least one task, unless its list is over. */
async function fill(given: Part): Promise<Part> {
  const { collection, filter, waiting, cursor, isOver } = given
  if (waiting.length > 0 || isOver) return { ...given, waiting: [...waiting] }
  const query = { status: 'completed', ...filter, ...(cursor === null ? {} : { cursor }) }
  const page = await listTasks(collection, query, new AbortController().signal)
  const kept = page.data.filter(isKept)
  // Where a whole page was removed, so was what is older.
  return { collection, filter, waiting: kept, cursor: page.next_cursor, isOver: !page.has_more || kept.length === 0 }
}
