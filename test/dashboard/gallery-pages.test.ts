/** The pages of the gallery, over a list of scripted pages. */
import t, { type Test } from 'tap'

type Answer = { data: object[]; has_more: boolean; next_cursor: string | null }

// By names of their own: the page's modules have the types of a browser. Its clock would keep the process.
const module = '../../plugins/dashboard/web/room/gallery-pages.ts'
t.intercept(globalThis, 'setInterval', { value: () => 0 })
const { readGallery } = await import(module)

const kept = (id: string) => ({ id, result: { expires_at: '2999-01-01T00:00:00Z' } })
const gone = (id: string) => ({ id, result: { expires_at: '2000-01-01T00:00:00Z' } })

/** Answers the reads of the list with these pages, by their cursor. */
function serve(t: Test, pages: object[][]): string[] {
  const asked: string[] = []
  t.intercept(globalThis, 'fetch', {
    value: async (url: string) => {
      const cursor = new URL(url, 'http://127.0.0.1').searchParams.get('cursor') ?? '0'
      asked.push(cursor)
      const next = Number(cursor) + 1
      const answer: Answer = { data: pages[Number(cursor)] ?? [], has_more: next < pages.length, next_cursor: next < pages.length ? String(next) : null }
      return Response.json(answer)
    },
  })
  return asked
}

t.test('older results are shown after a page of which everything was deleted', async (t) => {
  serve(t, [[kept('a')], [gone('b')], [gone('c')], [kept('d')]])
  const first = await readGallery('all', 0)
  t.match([first.shown.length, first.hasMore], [1, true])
  const second = await first.next()
  t.same([second.shown.map(({ id }: { id: string }) => id), second.hasMore], [['a', 'd'], false])
})

t.test('a long past of which nothing is kept is not read to its end', async (t) => {
  const asked = serve(t, [[kept('a')], ...Array.from({ length: 50 }, (_, n) => [gone(String(n))])])
  const all = await readGallery('all', 12)
  t.match([all.shown.length, all.hasMore, asked.length], [1, false, 6])
})
