/** What the parts of the AI Room share, for as long as the page is open and the tenant is the same. */
import { effect, signal, type Signal } from '@preact/signals'
import { createContext } from 'preact'
import { useContext } from 'preact/hooks'
import { isFinal, type Task } from '../api/tasks.ts'
import { label } from '../format.ts'
import { areForgotten, keepDrafts, keptDrafts, type Drafts } from './drafts.ts'
import { follow, type Kind, type Kinds, type Price, type Source } from './media-api.ts'
import { familyOf } from './labels.ts'
import { EMPTY_EDIT, has, UNMARKED, type Edit } from './operation-body.ts'

export type Draft = {
  kind: string
  prompt: string
  ratio: string
  seconds: number | null
  seed: string
  format: string
  options: Record<string, unknown>
  /** The picture that a video begins with. */
  frame: Source | null
}

export type RoomState = {
  mode: Signal<'make' | 'edit'>
  draft: Signal<Draft>
  edit: Signal<Edit>
  /** The sources of the next operation: one, or those of a merge in their order. */
  sources: Signal<Source[]>
  /** Sources that were replaced or removed, the latest last. */
  earlier: Signal<Source[][]>
  /** The task on the stage. */
  current: Signal<Task | null>
  /** Tasks that have not ended, the newest first. */
  running: Signal<Task[]>
  /** Raised when a task has ended. */
  ended: Signal<number>
  /** The forms of tasks that were made since the page was opened: a record has no more than the prompt. */
  made: Map<string, Draft>
  /** The task that was on the stage when the page was left. */
  shown: Drafts['shown']
  start(task: Task): void
  /** Replaces the sources; `undo` brings those of before back. */
  setSources(sources: Source[]): void
  undo(): void
  stop(): void
}

export const EMPTY_DRAFT: Draft = { kind: 'image', prompt: '', ratio: '', seconds: null, seed: '', format: '', options: {}, frame: null }

/** Streams at once: a browser has six connections to a server, and the page needs some itself. */
const STREAMS_MAX = 3

/** How many replaced sources can be had back. */
const EARLIER_MAX = 20

/** The form as the person left it, and nothing on the stage. */
export function openRoomState(): RoomState {
  const kept = keptDrafts()
  const stops = new Map<string, () => void>()
  const state: RoomState = {
    mode: signal(kept.mode ?? 'make'),
    draft: signal({ ...EMPTY_DRAFT, ...kept.draft }),
    edit: signal({ ...EMPTY_EDIT, ...kept.edit }),
    sources: signal(kept.sources ?? []),
    earlier: signal([]),
    current: signal(null),
    running: signal([]),
    ended: signal(0),
    made: new Map(),
    shown: kept.shown,
    start(task) {
      const others = state.running.value.filter(({ id }) => id !== task.id)
      state.running.value = [...others, task].sort((one, other) => (one.id < other.id ? 1 : -1))
      followNext()
    },
    setSources(next) {
      const { value: before } = state.sources
      if (before.length > 0) state.earlier.value = [...state.earlier.value, before].slice(-EARLIER_MAX)
      show(next)
    },
    undo() {
      show(state.earlier.value.at(-1) ?? [])
      state.earlier.value = state.earlier.value.slice(0, -1)
    },
    stop() {
      stopKeeping()
      removeEventListener('storage', forgotten)
      for (const stop of stops.values()) stop()
    },
  }

  /** Marks and times belong to the source that they were made on. */
  function show(next: Source[]): void {
    if (next[0]?.url !== state.sources.value[0]?.url) state.edit.value = { ...state.edit.value, ...UNMARKED }
    state.sources.value = next
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
  }

  let { shown } = kept
  let hasShown = false
  let before: string | null = null
  const stopKeeping = effect(() => {
    const { mode, draft, edit, sources, current } = state
    const { value: task } = current
    // Until the page has read the task that was on the stage, it is still that one.
    if (task) shown = { object: task.object, id: task.id }
    else if (hasShown) shown = undefined
    hasShown ||= task !== null
    // The brush makes the mask again, of the strokes.
    const drafts = { mode: mode.value, draft: draft.value, edit: { ...edit.value, mask: null }, sources: sources.value, shown }
    const text = JSON.stringify(drafts)
    if (text !== before) keepDrafts(drafts, before !== null)
    before = text
  })
  // Another tab has signed out: what it removed must not come back.
  const forgotten = (event: StorageEvent) => void (areForgotten(event) && stopKeeping())
  addEventListener('storage', forgotten)
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
  return kinds.data.find((kind) => kind.name === name) ?? null
}

/** Its price under the chosen plan; null when the plan has none. */
export function priceOf({ kinds, plan }: Pick<RoomContextValue, 'kinds' | 'plan'>, kind: string): Price | null {
  return kinds.prices.find((price) => price.plan === plan && price.kind === kind) ?? null
}

/**
 * Takes a result or file as the input: the picture that a video begins with, the next of the list for an operation that joins, else in place of
 * the present one. The form gets the focus.
 */
export function useAsInput(room: RoomContextValue, source: Source): void {
  const { state } = room
  if (isFrame(room, source)) state.draft.value = { ...state.draft.value, frame: source }
  else toEdit(room, source)
  requestAnimationFrame(() => {
    document.querySelector('.room-form')?.scrollIntoView({ block: 'nearest' })
    document.querySelector<HTMLElement>('.room-form .source-name')?.focus({ preventScroll: true })
  })
}

function toEdit(room: RoomContextValue, source: Source): void {
  const { state } = room
  state.setSources(isJoining(room, source) ? [...state.sources.value, source] : [source])
  state.mode.value = 'edit'
}

/** What `useAsInput` does with that source. */
export function inputAction(room: RoomContextValue, source: Source): string {
  if (isFrame(room, source)) return label('image_url')
  return isJoining(room, source) ? 'Add to merge' : 'Use as input'
}

/** Whether the form takes that source as the picture that a video begins with. */
function isFrame(room: RoomContextValue, { type }: Source): boolean {
  const { mode, draft } = room.state
  const kind = kindOf(room, draft.value.kind)
  return mode.value === 'make' && kind !== null && has(kind, 'image_url') && familyOf(type) === 'image'
}

/** Whether the form joins what it has with that source. */
function isJoining(room: RoomContextValue, source: Pick<Source, 'type'>): boolean {
  const { mode, edit, sources } = room.state
  const kind = kindOf(room, edit.value.operation)
  const isListed = mode.value === 'edit' && kind !== null && has(kind, 'media_urls') && sources.value.length > 0
  return isListed && [source, ...sources.value].every(({ type }) => familyOf(type) !== 'image')
}
