/** Plain HTTP client of the Coding Plan API for the flows. */
import { eventually } from './eventually.ts'
import type { Program } from './program.ts'

/** Base URL and key of a client. */
export type Caller = Pick<Program, 'url'>

/** Reads a member of an answer by its path: `at(body, 'error', 'code')`. */
export type Json = unknown

export function at(value: Json, ...path: (string | number)[]): Json {
  return path.reduce<Json>((inner, name) => (typeof inner === 'object' && inner !== null ? (inner as Record<string | number, unknown>)[name] : undefined), value)
}

export type Answer = { status: number; headers: Headers; body: Json }

export async function get(program: Caller, key: string, path: string): Promise<Answer> {
  return answer(await fetch(`${program.url}${path}`, { headers: { authorization: `Bearer ${key}` } }))
}

/** Sends a POST and returns the unread response, for a stream. */
export function post(program: Caller, key: string, path: string, body: object, signal?: AbortSignal, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${program.url}${path}`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  })
}

/** One small chat request, read to its end. */
export async function chat(program: Caller, key: string, content = 'Hello'): Promise<Answer> {
  return answer(await post(program, key, '/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user', content }] }))
}

export async function answer(response: Response): Promise<Answer> {
  const text = await response.text()
  let body: Json = text
  try {
    body = JSON.parse(text)
  } catch {
    // An answer that is not JSON stays text, so that the assert shows it.
  }
  return { status: response.status, headers: response.headers, body }
}

export type Event = { event: string | null; data: Json }

/** The events of a stream (SSE) as they arrive; `data` is parsed unless it is `[DONE]`. */
export async function* events(response: Response): AsyncGenerator<Event> {
  if (!response.body) throw new Error('the response has no body')
  let buffered = ''
  for await (const text of response.body.pipeThrough(new TextDecoderStream())) {
    buffered += text
    for (let end = buffered.indexOf('\n\n'); end >= 0; end = buffered.indexOf('\n\n')) {
      const lines = buffered.slice(0, end).split('\n')
      buffered = buffered.slice(end + 2)
      const field = (name: string) => lines.find((line) => line.startsWith(`${name}: `))?.slice(name.length + 2) ?? null
      const data = field('data')
      if (data !== null) yield { event: field('event'), data: data === '[DONE]' ? data : JSON.parse(data) }
    }
  }
}

/** Reads the rest of a stream. */
export async function all(stream: AsyncGenerator<Event>): Promise<Event[]> {
  const seen: Event[] = []
  for await (const event of stream) seen.push(event)
  return seen
}

/** The usage of the session and the weekly window, once nothing is reserved: an answer ends before it is charged. */
export function used(program: Caller, key: string): Promise<{ session: number; weekly: number }> {
  return eventually('the settlement of what was answered', async () => {
    const { status, body } = await get(program, key, '/v1/usage')
    if (status !== 200) throw new Error(`GET /v1/usage answered ${status}: ${JSON.stringify(body)}`)
    const isSettled = at(body, 'session', 'reserved') === 0
    return isSettled ? { session: Number(at(body, 'session', 'used')), weekly: Number(at(body, 'weekly', 'used')) } : null
  })
}
