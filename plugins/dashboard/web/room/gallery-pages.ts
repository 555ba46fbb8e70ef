/** Finished generations and operations as one list by time, from two lists that are read page by page. */
import { listTasks, type Collection, type Task } from '../api/tasks.ts'

export type GalleryPages = { shown: Task[]; hasMore: boolean; next(): Promise<GalleryPages> }

type Part = { collection: Collection; waiting: Task[]; cursor: string | null; isOver: boolean }

const PAGE = 12

export function openGalleryPages(): GalleryPages {
  return pagesOf([], [part('generations'), part('operations')])
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
      while (more.length < PAGE && filled.some(({ waiting }) => waiting.length > 0) && filled.every(({ waiting, isOver }) => waiting.length > 0 || isOver)) {
        const newest = filled.reduce((a, b) => ((a.waiting[0]?.created_at ?? '') >= (b.waiting[0]?.created_at ?? '') ? a : b))
        const task = newest.waiting.shift()
        if (task?.result && Date.parse(task.result.expires_at) > Date.now()) more.push(task)
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
  return { collection, waiting: page.data, cursor: page.next_cursor, isOver: !page.has_more }
}
