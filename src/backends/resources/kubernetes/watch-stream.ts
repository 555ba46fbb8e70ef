/** One watch request of a collection: decodes its stream of events until the server ends it. */
import { Unavailable } from '../../../domain/errors.ts'
import { failure, unexpected, type ApiResponse, type Client, type FailureBody } from './api-client.ts'
import type { KubeObject } from './api-objects.ts'

export type WatchEvent = { type: 'ADDED' | 'MODIFIED' | 'DELETED' | 'BOOKMARK'; object: KubeObject }

/** How a watch ended: at its timeout, or because the resource version has expired (410 Gone). */
export type WatchEnd = 'ended' | 'expired'

export type WatchOptions = {
  path: string
  query: Record<string, string>
  version: string
  timeoutSeconds: number
  signal: AbortSignal
  /** Called when the server has accepted the watch. */
  opened: () => void
  each: (event: WatchEvent) => void
}

/** A watch without any event, not even a bookmark, for so long is taken for a dead connection. */
const IDLE_MS = 120_000

/** Throws `Unavailable` when the watch fails or is aborted. */
export async function watch(
  client: Client,
  { path, query, version, timeoutSeconds, signal, opened, each }: WatchOptions,
): Promise<WatchEnd> {
  const parameters = {
    ...query,
    watch: 'true',
    allowWatchBookmarks: 'true',
    resourceVersion: version,
    timeoutSeconds: String(timeoutSeconds),
  }
  const body = await client.stream(path, parameters, signal, IDLE_MS)
  if ('status' in body) {
    if (body.status === 410) return 'expired'
    throw unexpected('GET', path, body)
  }
  opened()
  try {
    for await (const line of lines(body)) {
      const { type, object } = JSON.parse(line) as WatchEvent | { type: 'ERROR'; object: KubeObject }
      if (type === 'ERROR') return errorEnd(path, object)
      each({ type, object })
    }
  } catch (error) {
    throw error instanceof Unavailable ? error : new Unavailable('resources', error)
  }
  return 'ended'
}

function errorEnd(path: string, object: object): WatchEnd {
  const status = object as FailureBody
  if (status.code === 410) return 'expired'
  const response: ApiResponse<object> = { status: status.code ?? 0, body: status }
  throw new Unavailable('resources', failure('GET', path, response))
}

/** Lines of a byte stream. A last line without a newline is an incomplete event and is dropped. */
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
