/** Client-side router over the History API. Paths are relative to `/dashboard`. */
import { signal } from '@preact/signals'

export const BASE = '/dashboard'

export type Location = { path: string; query: URLSearchParams }

function read(): Location {
  const path = location.pathname.slice(BASE.length).replace(/\/$/, '')
  return { path: path === '' ? '/' : path, query: new URLSearchParams(location.search) }
}

/** Where the person is. `path` begins with a slash: `/`, `/keys`, `/tasks/…`. */
export const here = signal<Location>(read())

/** Goes to a page. `replace` keeps the history as it is, for filters. */
export function go(to: string, { replace = false } = {}): void {
  const url = hrefOf(to)
  if (replace) history.replaceState(null, '', url)
  else history.pushState(null, '', url)
  const before = here.value.path
  here.value = read()
  if (!replace && before !== here.value.path) scrollTo(0, 0)
}

/** The address of a page, for `href`. */
export function hrefOf(to: string): string {
  return `${BASE}${to}`
}

addEventListener('popstate', () => (here.value = read()))

/** Links to pages of ours change the page without a request; all others are the browser's. */
document.addEventListener('click', (event) => {
  if (event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return
  const link = (event.target as Element).closest('a')
  if (!link || link.target !== '' || link.hasAttribute('download') || link.dataset['reload'] !== undefined) return
  const url = new URL(link.href)
  if (
    url.origin !== location.origin ||
    (url.pathname !== BASE && !url.pathname.startsWith(`${BASE}/`)) ||
    link.getAttribute('href')?.startsWith('#')
  )
    return
  event.preventDefault()
  go(`${url.pathname.slice(BASE.length)}${url.search}${url.hash}`)
})
