/** Data of a page: loading, ready or failed, with reload and polling while the page is visible. */
import { useEffect, useMemo } from 'preact/hooks'
import { signal, type ReadonlySignal } from '@preact/signals'
import type { ComponentChildren } from 'preact'
import { outage } from '../api/client.ts'
import { Failed, Loading } from './states.tsx'

export type Loaded<T> = { state: 'loading'; data?: undefined } | { state: 'ready'; data: T } | { state: 'failed'; error: Error; data?: T }
export type Load<T> = { value: ReadonlySignal<Loaded<T>>; reload: () => Promise<void> }

/**
 * Calls `loader` at once, when `inputs` change, and every `everyMs` while the page is visible and no call is under way. A failed repetition
 * keeps the last data and sets the error beside it. `reload` calls it in any case: the answer that it overtakes is dropped.
 */
export function useLoad<T>(loader: (abort: AbortSignal) => Promise<T>, inputs: unknown[], everyMs?: number): Load<T> {
  const load = useMemo(() => openLoad(loader), inputs)
  useEffect(() => {
    void load.reload()
    const again = () => document.visibilityState === 'visible' && load.repeat()
    const timer = everyMs === undefined ? null : setInterval(again, everyMs)
    document.addEventListener('visibilitychange', again)
    // Whatever has failed is read again as soon as the server answers anything.
    const answers = outage.subscribe((why) => void (why === null && load.value.peek().state === 'failed' && load.repeat()))
    return () => {
      answers()
      if (timer !== null) clearInterval(timer)
      document.removeEventListener('visibilitychange', again)
      load.stop()
    }
  }, [load])
  return load
}

function openLoad<T>(loader: (abort: AbortSignal) => Promise<T>): Load<T> & { repeat: () => void; stop: () => void } {
  const value = signal<Loaded<T>>({ state: 'loading' })
  let running: AbortController | null = null
  async function reload(): Promise<void> {
    running?.abort()
    const mine = new AbortController()
    running = mine
    try {
      const data = await loader(mine.signal)
      if (running === mine) value.value = { state: 'ready', data }
    } catch (error) {
      if (running !== mine || mine.signal.aborted) return
      const last = value.value
      value.value = { state: 'failed', error: error as Error, ...('data' in last && last.data !== undefined ? { data: last.data } : {}) }
    } finally {
      if (running === mine) running = null
    }
  }
  return { value, reload, repeat: () => void (running === null && reload()), stop: () => running?.abort() }
}

/** Shows data once it is there; until then a placeholder of `lines`, and a failure with a way to try again. */
export function Async<T>({ of, lines = 3, children }: { of: Load<T>; lines?: number; children: (data: T) => ComponentChildren }) {
  const loaded = of.value.value
  if (loaded.state === 'loading') return <Loading lines={lines} />
  if (loaded.state === 'failed' && loaded.data === undefined) return <Failed error={loaded.error} retry={of.reload} />
  return <>{children(loaded.data as T)}</>
}
