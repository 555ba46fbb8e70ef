/** What the parts of the AI Room share, for as long as the page is open and the tenant is the same. */
import { signal, type Signal } from '@preact/signals'
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { isFinal, type Task } from '../api/tasks.ts'
import { follow, sourceOf, type Kind, type Kinds, type Price, type Source } from './media-api.ts'
import { nameOf } from './labels.ts'

export type Draft = { kind: string; prompt: string; ratio: string; seconds: number | null; seed: string; format: string }

export type RoomState = {
  mode: Signal<'make' | 'edit'>
  draft: Signal<Draft>
  /** The sources of the next operation: one, or those of a merge in their order. */
  sources: Signal<Source[]>
  /** Sources that results have replaced, the latest last. */
  earlier: Signal<Source[][]>
  /** The task on the stage. */
  current: Signal<Task | null>
  /** Tasks that have not ended, the newest first. */
  running: Signal<Task[]>
  /** Raised when a task has ended. */
  ended: Signal<number>
  start(task: Task): void
  useAsInput(source: Source): void
  stop(): void
}

export const EMPTY_DRAFT: Draft = { kind: 'image', prompt: '', ratio: '', seconds: null, seed: '', format: '' }

/** Streams at once: a browser has six connections to a server, and the page needs some itself. */
const STREAMS_MAX = 3

/** An empty form and nothing on the stage. */
export function openRoomState(): RoomState {
  const stops = new Map<string, () => void>()
  const state: RoomState = {
    mode: signal('make'),
    draft: signal(EMPTY_DRAFT),
    sources: signal([]),
    earlier: signal([]),
    current: signal(null),
    running: signal([]),
    ended: signal(0),
    start(task) {
      state.running.value = [task, ...state.running.value.filter(({ id }) => id !== task.id)]
      followNext()
    },
    useAsInput(source) {
      state.sources.value = [source]
      state.earlier.value = []
      state.mode.value = 'edit'
    },
    stop() {
      for (const stop of stops.values()) stop()
    },
  }

  function followNext(): void {
    for (const task of state.running.value) {
      if (stops.size >= STREAMS_MAX) return
      if (!stops.has(task.id)) stops.set(task.id, follow(task, changed))
    }
  }

  function changed(task: Task): void {
    if (state.current.value?.id === task.id) state.current.value = task
    if (!isFinal(task)) {
      state.running.value = state.running.value.map((one) => (one.id === task.id ? task : one))
      return
    }
    stops.get(task.id)?.()
    stops.delete(task.id)
    state.running.value = state.running.value.filter(({ id }) => id !== task.id)
    state.ended.value++
    followNext()
    continueWith(task)
  }

  /** The result of the operation on the stage is the next input, unless the person has chosen another meanwhile. */
  function continueWith(task: Task): void {
    const { sources, earlier, current } = state
    if (!task.result || task.object !== 'operation' || current.value?.id !== task.id) return
    const used = [task.input?.['media_url'], ...((task.input?.['media_urls'] as string[] | undefined) ?? [])]
    if (sources.value.length === 0 || !sources.value.every(({ url }) => used.includes(url))) return
    earlier.value = [...earlier.value, sources.value]
    sources.value = [sourceOf(task.result, nameOf(task))]
  }

  return state
}

export type RoomContextValue = { state: RoomState; plan: string; kinds: Kinds; reloadPlans: () => void }

export const RoomContext = createContext<RoomContextValue | null>(null)

/** The state of the AI Room, for a component inside it. */
export function useRoom(): RoomContextValue {
  const room = useContext(RoomContext)
  if (!room) throw new Error('a part of the AI Room is outside of it')
  return room
}

/** A kind or operation by its name; null when the service has none of that name. */
export function kindOf({ kinds }: Pick<RoomContextValue, 'kinds'>, name: string): Kind | null {
  return kinds.data.find(({ verb }) => verb === name) ?? null
}

/** Its price under the chosen plan; null when the plan has none. */
export function priceOf({ kinds, plan }: Pick<RoomContextValue, 'kinds' | 'plan'>, kind: string): Price | null {
  return kinds.prices.find((price) => price.plan === plan && price.verb === kind) ?? null
}
