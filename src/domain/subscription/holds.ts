/**
 * The open holds of a media account: an immutable sorted collection with its sums. A change copies one chunk of at most 64 holds and shares the rest with the
 * collection before it, so that an operation costs the same beside ten holds and beside ten thousand. Pure.
 */
import type { Hold, MediaAccount } from './subscription.ts'

/** Kind of the hold of a pass-through request: no task belongs to it, and no worker claims it. */
export const PASS_THROUGH = 'proxy'

type Sum = { readonly count: number; readonly amount: number }

/** Consecutive holds in the order of their ids. A chunk never changes: the same object has the same holds. */
export type Chunk = {
  readonly ids: readonly string[]
  readonly holds: readonly Hold[]
  /** Holds that wait for a worker. */
  readonly waiting: number
  /** The earliest of those, per kind. */
  readonly earliest: Readonly<Record<string, number>>
}

/** By task id; UUID v7, so the order of the ids is the order of creation. */
export type Holds = {
  readonly chunks: readonly Chunk[]
  readonly count: number
  readonly periods: ReadonlyMap<number, Sum>
  /** By `sumKey`. */
  readonly keys: ReadonlyMap<string, Sum>
  /** Those that run. */
  readonly running: ReadonlyMap<string, Hold>
}

const CHUNK_MAX = 64

const NO_CHUNK: Chunk = { ids: [], holds: [], waiting: 0, earliest: {} }

export const NO_HOLDS: Holds = { chunks: [], count: 0, periods: new Map(), keys: new Map(), running: new Map() }

/** The collection of these holds, in any order. */
export function holdsFrom(entries: Iterable<readonly [string, Hold]>): Holds {
  const sorted = [...entries].sort(([a], [b]) => (a < b ? -1 : 1))
  const chunks: Chunk[] = []
  for (let from = 0; from < sorted.length; from += CHUNK_MAX) {
    const part = sorted.slice(from, from + CHUNK_MAX)
    chunks.push(
      chunkOf(
        part.map(([id]) => id),
        part.map(([, hold]) => hold),
      ),
    )
  }
  return holdsOfChunks(chunks)
}

/** The collection of chunks that are in order. */
export function holdsOfChunks(chunks: readonly Chunk[]): Holds {
  const periods = new Map<number, Sum>()
  const keys = new Map<string, Sum>()
  const running = new Map<string, Hold>()
  for (const { ids, holds } of chunks) {
    for (const [n, hold] of holds.entries()) {
      count({ periods, keys }, hold, 1)
      if (hold.run !== null) running.set(ids[n] as string, hold)
    }
  }
  return { chunks, count: chunks.reduce((sum, { ids }) => sum + ids.length, 0), periods, keys, running }
}

/** A chunk of holds that are in the order of their ids. */
export function chunkOf(ids: readonly string[], holds: readonly Hold[]): Chunk {
  const earliest: Record<string, number> = {}
  let waiting = 0
  for (const { kind, readyAt, run } of holds) {
    if (run !== null || kind === PASS_THROUGH) continue
    waiting++
    earliest[kind] = Math.min(earliest[kind] ?? readyAt, readyAt)
  }
  return { ids, holds, waiting, earliest }
}

/** All holds, oldest first. */
export function* entriesOf(holds: Pick<Holds, 'chunks'> | undefined): Generator<[string, Hold]> {
  for (const chunk of holds?.chunks ?? []) for (const [n, id] of chunk.ids.entries()) yield [id, chunk.holds[n] as Hold]
}

/** The holds of `after` that are not in `before`, and the ids that only `before` has. Chunks that both have are passed over. */
export function changedHolds(before: Holds, after: Holds): { set: [string, Hold][]; gone: string[] } {
  const { removed, added } = changedChunks(before, after)
  const left = new Map(entriesOf({ chunks: removed }))
  const set: [string, Hold][] = []
  for (const [id, hold] of entriesOf({ chunks: added })) {
    if (left.get(id) !== hold) set.push([id, hold])
    left.delete(id)
  }
  return { set, gone: [...left.keys()] }
}

/** The chunks of `before` that `after` does not have, and the other way round. */
export function changedChunks(before: Holds | undefined, after: Holds | undefined): { removed: Chunk[]; added: Chunk[] } {
  const [old, chunks] = [new Set(before?.chunks), new Set(after?.chunks)]
  return { removed: [...old.difference(chunks)], added: [...chunks.difference(old)] }
}

/** The hold of a task. */
export function holdOf(holds: Holds | undefined, id: string): Hold | undefined {
  const chunk = holds?.chunks[chunkAt(holds.chunks, id)]
  return chunk?.holds[chunk.ids.indexOf(id)]
}

/** With `id` set to `hold`. */
export function withHold(holds: Holds, id: string, hold: Hold): Holds {
  const at = Math.max(0, chunkAt(holds.chunks, id))
  const chunk = holds.chunks[at] ?? NO_CHUNK
  const n = chunk.ids.indexOf(id)
  return {
    ...summed(holds, id, chunk.holds[n], hold),
    chunks: holds.chunks.toSpliced(at, 1, ...(n < 0 ? inserted(chunk, id, hold) : [chunkOf(chunk.ids, chunk.holds.with(n, hold))])),
  }
}

/** Without `id`, if it is there. */
export function withoutHold(holds: Holds, id: string): Holds {
  const at = chunkAt(holds.chunks, id)
  const chunk = holds.chunks[at] ?? NO_CHUNK
  const n = chunk.ids.indexOf(id)
  return n < 0
    ? holds
    : {
        ...summed(holds, id, chunk.holds[n], undefined),
        chunks: shrunk(holds.chunks, at, chunk.ids.toSpliced(n, 1), chunk.holds.toSpliced(n, 1)),
      }
}

/** The earliest waiting hold per kind. */
export function earliestWaiting(holds: Holds): MediaAccount['due'] {
  const earliest = new Map<string, number>()
  for (const chunk of holds.chunks) {
    for (const kind in chunk.earliest) earliest.set(kind, Math.min(earliest.get(kind) ?? Infinity, chunk.earliest[kind] as number))
  }
  return [...earliest].map(([kind, readyAt]) => ({ kind, readyAt }))
}

/** The holds of these kinds that are ready at `now`, oldest first; a chunk without one is passed over. */
export function* readyOf(holds: Holds, kinds: readonly string[], now: number): Generator<[string, Hold]> {
  for (const { ids, holds: held, earliest } of holds.chunks) {
    if (!kinds.some((kind) => (earliest[kind] ?? Infinity) <= now)) continue
    for (const [n, hold] of held.entries()) {
      if (hold.run === null && hold.readyAt <= now && kinds.includes(hold.kind)) yield [ids[n] as string, hold]
    }
  }
}

/** The oldest of them. */
export function oldestReady(holds: Holds, kinds: readonly string[], now: number): [string, Hold] | null {
  return readyOf(holds, kinds, now).next().value ?? null
}

/** How many holds wait for a worker. */
export function waitingIn({ chunks }: Pick<Holds, 'chunks'>): number {
  return chunks.reduce((sum, { waiting }) => sum + waiting, 0)
}

/** The same, up to and including `id`. */
export function waitingUntil(holds: Holds, id: string): number {
  const at = chunkAt(holds.chunks, id)
  const before = waitingIn({ chunks: holds.chunks.slice(0, Math.max(0, at)) })
  const chunk = holds.chunks[at] ?? NO_CHUNK
  return before + chunkOf([], chunk.holds.slice(0, chunk.ids.findLastIndex((one) => one <= id) + 1)).waiting
}

/** Micro-units held in a period. */
export function heldIn(holds: Holds, period: number): number {
  return holds.periods.get(period)?.amount ?? 0
}

/** Micro-units held by a key in a period. */
export function heldByKey(holds: Holds, period: number, keyId: string): number {
  return holds.keys.get(sumKey(period, keyId))?.amount ?? 0
}

function sumKey(period: number, keyId: string): string {
  return `${period} ${keyId}`
}

/** The index of the chunk whose range has `id`; -1 before the first. */
function chunkAt(chunks: readonly Chunk[], id: string): number {
  let [low, high] = [0, chunks.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if ((chunks[middle]?.ids[0] as string) <= id) low = middle + 1
    else high = middle
  }
  return low - 1
}

/** The chunk with one more hold, or two when it is full. One that is full at its end stays whole: most holds are the newest. */
function inserted(chunk: Chunk, id: string, hold: Hold): Chunk[] {
  const n = chunk.ids.findLastIndex((one) => one < id) + 1
  const [ids, holds] = [chunk.ids.toSpliced(n, 0, id), chunk.holds.toSpliced(n, 0, hold)]
  if (ids.length <= CHUNK_MAX) return [chunkOf(ids, holds)]
  const cut = n === CHUNK_MAX ? CHUNK_MAX : CHUNK_MAX / 2
  return [chunkOf(ids.slice(0, cut), holds.slice(0, cut)), chunkOf(ids.slice(cut), holds.slice(cut))]
}

/** The chunks with one of them shrunk; it joins a neighbor when both are small, so that their number follows that of the holds. */
function shrunk(chunks: readonly Chunk[], at: number, ids: readonly string[], holds: readonly Hold[]): Chunk[] {
  const fits = (chunk: Chunk | undefined) => chunk !== undefined && chunk.ids.length + ids.length <= CHUNK_MAX / 2
  const neighbor = [at + 1, at - 1].find((n) => fits(chunks[n]))
  if (neighbor === undefined) return chunks.toSpliced(at, 1, ...(ids.length > 0 ? [chunkOf(ids, holds)] : []))
  const other = chunks[neighbor] as Chunk
  const [left, right] = neighbor < at ? [other, { ids, holds }] : [{ ids, holds }, other]
  return chunks.toSpliced(Math.min(at, neighbor), 2, chunkOf([...left.ids, ...right.ids], [...left.holds, ...right.holds]))
}

/** The sums after the hold of `id` changed. */
function summed(holds: Holds, id: string, before: Hold | undefined, after: Hold | undefined): Omit<Holds, 'chunks'> {
  const next = {
    count: holds.count + (after ? 1 : 0) - (before ? 1 : 0),
    periods: new Map(holds.periods),
    keys: new Map(holds.keys),
    running: holds.running,
  }
  if (before) count(next, before, -1)
  if (after) count(next, after, 1)
  if ((before?.run ?? null) === null && (after?.run ?? null) === null) return next
  const running = new Map(holds.running)
  if (after && after.run !== null) running.set(id, after)
  else running.delete(id)
  return { ...next, running }
}

function count(
  { periods, keys }: { periods: Map<number, Sum>; keys: Map<string, Sum> },
  { period, keyId, amount }: Hold,
  sign: 1 | -1,
): void {
  add(periods, period, sign, amount)
  add(keys, sumKey(period, keyId), sign, amount)
}

function add<K>(sums: Map<K, Sum>, key: K, sign: 1 | -1, amount: number): void {
  const before = sums.get(key) ?? { count: 0, amount: 0 }
  const next = before.count + sign
  if (next === 0) sums.delete(key)
  else sums.set(key, { count: next, amount: before.amount + sign * amount })
}
