/** Finished generations and operations as one list by time, from two lists that are read page by page. */
import { listTasks, type Collection, type Task } from '../api/tasks.ts'
import { serverTime } from '../clock.ts'

export type GalleryPages = { shown: Task[]; hasMore: boolean; next(): Promise<GalleryPages> }

type Part = { collection: Collection; waiting: Task[]; cursor: string | null; isOver: boolean }

const PAGE = 12

/** The newest, at least `count` where there are as many: a gallery that is read again keeps its length. */
export async function readGallery(count: number): Promise<GalleryPages> {
  let pages = await pagesOf([], [part('generations'), part('operations')]).next()
  while (pages.shown.length < count && pages.hasMore) pages = await pages.next()
  return pages
}

function part(collection: Collection): Part {
  return { collection, waiting: [], cursor: null, isOver: false }
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
  const { collection, waiting, cursor, isOver } = given
  if (waiting.length > 0 || isOver) return { ...given, waiting: [...waiting] }
  const page = await listTasks(collection, { status: 'completed', ...(cursor === null ? {} : { cursor }) }, new AbortController().signal)
  const kept = page.data.filter(isKept)
  // Where a whole page was removed, so was what is older.
  return { collection, waiting: kept, cursor: page.next_cursor, isOver: !page.has_more || kept.length === 0 }
}

const isKept = ({ result }: Task): boolean => result !== null && Date.parse(result.expires_at) > serverTime()
