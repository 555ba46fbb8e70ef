/** One watch of a collection: its events, from a version on, until the server ends it. */
import { Unavailable } from '../../../domain/errors.ts'
import { failure, unexpected, type Answer, type Client, type Failed } from './api-client.ts'
import { kept, type KubeObject } from './api-objects.ts'

export type WatchEvent = { type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK'; object: KubeObject }

/** How a watch ended: by itself, or because the server does not know that version any more. */
export type WatchEnd = 'ended' | 'expired'

export type WatchOptions = {
  path: string
  query: Record<string, string>
  version: string
  timeoutSeconds: number
  signal: AbortSignal
  /** The server took the watch on. */
  opened: () => void
  each: (event: WatchEvent) => void
}

/** A server that says nothing for so long, not even a bookmark, may be one that is not there. */
const IDLE_MS = 120_000

/** Throws `Unavailable` when the watch breaks, or is aborted. */
export async function watch(client: Client, { path, query, version, timeoutSeconds, signal, opened, each }: WatchOptions): Promise<WatchEnd> {
  const asked = { ...query, watch: 'true', allowWatchBookmarks: 'true', resourceVersion: version, timeoutSeconds: String(timeoutSeconds) }
  const body = await client.stream(path, asked, signal, IDLE_MS)
  if ('status' in body) {
    if (body.status === 410) return 'expired'
    throw unexpected('GET', path, body)
  }
  opened()
  try {
    for await (const line of lines(body)) {
      const { type, object } = JSON.parse(line) as WatchEvent | { type: 'ERROR'; object: KubeObject }
      if (type === 'ERROR') return ended(path, object)
      each({ type, object: kept(object) })
    }
  } catch (error) {
    throw error instanceof Unavailable ? error : new Unavailable('resources', error)
  }
  return 'ended'
}

function ended(path: string, object: object): WatchEnd {
  const status = object as Failed
  if (status.code === 410) return 'expired'
  const answer: Answer<object> = { status: status.code ?? 0, body: status }
  throw new Unavailable('resources', failure('GET', path, answer))
}

/** Lines of a stream of bytes. What is left without an end of line is half an event, and left out. */
export async function* lines(body: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  let parts: string[] = []
  for await (const chunk of body) {
    const [first = '', ...rest] = decoder.decode(chunk, { stream: true }).split('\n')
    parts.push(first)
    for (const next of rest) {
      const line = parts.join('')
      if (line !== '') yield line
      parts = [next]
    }
  }
}
