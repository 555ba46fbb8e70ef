/** Load of a soak: every kind of request at a steady rate, also those that clients break off, over one program on loopback. */
import { setTimeout as pause } from 'node:timers/promises'
import { openConnection } from '../connection.ts'
import { chatBytes, IDLE, PACED, responsesBytes } from '../requests.ts'
import { blankCanvas } from '../../src/backends/engines/painter/canvas.ts'
import { png } from '../../src/backends/engines/preview/png-encoder.ts'
import type { SoakReceiver } from './receiver.ts'

export type Target = { url: string; opsUrl: string; coding: string[]; media: string[]; receiver: SoakReceiver }

/** Times a minute at rate 1, and one time. An exception counts as a failure. */
type Action = { perMinute: number; run(key: { coding: string; media: string }, n: number): Promise<void> }

export type Load = {
  /** Counts by action since the start. */
  counts: ReadonlyMap<string, { done: number; failed: number; skipped: number }>
  failures: string[]
  /** Starts no more actions and waits for those that run, at most `ms`. */
  pause(ms: number): Promise<void>
  resume(): void
  stop(): Promise<void>
}

/** An action that finds so many running is skipped: a slow program must not be given more and more. */
const MOST_RUNNING = 64
const LONGEST_MS = 90_000

/** Starts the actions, `rate` times as often as their table says. */
export function startLoad(target: Target, rate: number): Load {
  const counts = new Map<string, { done: number; failed: number; skipped: number }>()
  const failures: string[] = []
  const running = new Set<Promise<void>>()
  /** What became due during a pause, each kind once: a pause that comes as often as a kind would otherwise leave it out. */
  const postponed = new Set<() => void>()
  let isPaused = false
  const timers = Object.entries(actions(target)).map(([name, { perMinute, run }]) => {
    const count = { done: 0, failed: 0, skipped: 0 }
    counts.set(name, count)
    let n = 0
    const begin = () => {
      if (isPaused) return void postponed.add(begin)
      if (running.size >= MOST_RUNNING) return void count.skipped++
      n++
      const one = run({ coding: target.coding[n % target.coding.length] ?? '', media: target.media[n % target.media.length] ?? '' }, n)
        .then(() => void count.done++)
        .catch((error: Error) => {
          count.failed++
          if (failures.length < 20) failures.push(`${name}: ${error.message}`)
        })
        .finally(() => running.delete(one))
      running.add(one)
    }
    return setInterval(begin, 60_000 / (perMinute * rate))
  })
  return {
    counts,
    failures,
    async pause(ms) {
      isPaused = true
      await Promise.race([Promise.all(running), pause(ms)])
    },
    resume() {
      isPaused = false
      for (const begin of postponed) begin()
      postponed.clear()
    },
    async stop() {
      for (const timer of timers) clearInterval(timer)
      await Promise.all(running)
    },
  }
}

/** A picture of noise as a data: URL, about 150 KB. */
function upload(): string {
  const canvas = blankCanvas(256, 192)
  let seed = 1
  for (let i = 0; i < canvas.rgb.length; i++) canvas.rgb[i] = (seed = (seed * 48_271) % 2_147_483_647) & 255
  return `data:image/png;base64,${Buffer.from(png(canvas)).toString('base64')}`
}

function actions({ url, opsUrl, receiver }: Target): Record<string, Action> {
  const picture = upload()
  const music: { url: string; endsAt: number }[] = []

  async function ask(expected: number, path: string, key: string | null, { body, headers, signal }: { body?: object | string; headers?: Record<string, string>; signal?: AbortSignal } = {}): Promise<Response> {
    const sent = typeof body === 'object' ? JSON.stringify(body) : body
    const response = await fetch(path.startsWith('http') ? path : `${url}${path}`, {
      ...(sent === undefined ? {} : { method: 'POST', body: sent }),
      headers: { ...(key === null ? {} : { authorization: `Bearer ${key}` }), ...(sent === undefined ? {} : { 'content-type': 'application/json' }), ...headers },
      signal: signal ?? AbortSignal.timeout(LONGEST_MS),
    })
    if (response.status !== expected) throw new Error(`${path} answered ${response.status}, not ${expected}: ${(await response.text()).slice(0, 300)}`)
    return response
  }
  const drained = async (response: Promise<Response>): Promise<void> => void (await (await response).arrayBuffer())
  const created = async (key: string, path: string, body: object, wait = 60): Promise<Task> =>
    (await (await ask(wait > 0 ? 200 : 202, `/api/v1/${path}`, key, { body, headers: wait > 0 ? { prefer: `wait=${wait}` } : {} })).json()) as Task
  const image = { kind: 'image', prompt: 'A lighthouse at dawn' }

  /** Sends prepared bytes over a connection of its own, and closes it after the whole answer or, with `abort`, after its first byte. */
  async function stream(bytes: Buffer, { abort }: { abort: boolean }): Promise<void> {
    const connection = await openConnection(url)
    try {
      const status = abort ? await connection.begin(bytes) : (await connection.ask(bytes)).status
      if (status !== 200) throw new Error(`a stream was answered ${status}`)
    } finally {
      connection.close()
    }
  }
  const chat = { model: 'svc-code', messages: [{ role: 'user', content: 'Why does this function answer twice?' }], max_tokens: 64 }
  const song = () => music.filter(({ endsAt }) => endsAt > Date.now()).at(-1)?.url ?? null
  /** Reads a range or the whole of the latest music. */
  async function download(headers: Record<string, string>, expected: number, abort = false): Promise<void> {
    const file = song()
    if (file === null) return
    const controller = new AbortController()
    const response = await ask(expected, file, null, { headers, signal: controller.signal })
    if (!abort) return void (await response.arrayBuffer())
    await response.body?.getReader().read()
    controller.abort()
  }

  return {
    'chat, JSON': { perMinute: 420, run: ({ coding }, n) => drained(ask(200, '/v1/chat/completions', coding, { body: { ...chat, user: `user-${n}` } })) },
    'responses, JSON': { perMinute: 180, run: ({ coding }, n) => drained(ask(200, '/v1/responses', coding, { body: { model: 'svc-code', input: `Why ${n}?`, max_output_tokens: 64 } })) },
    'chat, stream': { perMinute: 90, run: ({ coding }) => stream(chatBytes(coding, { stream: true, mark: PACED }), { abort: false }) },
    'responses, stream': { perMinute: 60, run: ({ coding }) => stream(responsesBytes(coding, { stream: true, mark: PACED }), { abort: false }) },
    'chat, stream broken off': { perMinute: 45, run: ({ coding }, n) => stream(chatBytes(coding, { stream: true, mark: n % 2 ? IDLE : PACED }), { abort: true }) },
    'responses, stream broken off': { perMinute: 30, run: ({ coding }, n) => stream(responsesBytes(coding, { stream: true, mark: n % 2 ? IDLE : PACED }), { abort: true }) },
    'unknown key': { perMinute: 20, run: (_keys, n) => drained(ask(401, '/v1/chat/completions', `tg-unknown-${n}`, { body: chat })) },
    'invalid body': { perMinute: 20, run: ({ coding }) => drained(ask(400, '/v1/chat/completions', coding, { body: '{"model": ' })) },
    'models, usage': { perMinute: 60, run: ({ coding }, n) => drained(ask(200, n % 2 ? '/v1/models' : '/v1/usage', coding)) },
    'image with webhook': {
      perMinute: 60,
      async run({ media }, n) {
        const { id } = await created(media, 'generations', { ...image, webhook_url: receiver.url, metadata: { n: String(n) } }, n % 2 ? 60 : 0)
        await receiver.arrived(id, LONGEST_MS)
      },
    },
    'image, replayed by its key': {
      perMinute: 15,
      async run({ media }) {
        const headers = { 'idempotency-key': crypto.randomUUID() }
        await drained(ask(202, '/api/v1/generations', media, { body: image, headers }))
        await drained(ask(200, '/api/v1/generations', media, { body: image, headers }))
      },
    },
    'music, canceled': {
      perMinute: 6,
      async run({ media }) {
        const { id } = await created(media, 'generations', { kind: 'music', prompt: 'Rain', duration_seconds: 2 }, 0)
        const response = await fetch(`${url}/api/v1/generations/${id}/cancel`, { method: 'POST', headers: { authorization: `Bearer ${media}` } })
        await response.arrayBuffer()
        if (response.status !== 200 && response.status !== 409) throw new Error(`a cancel was answered ${response.status}`)
      },
    },
    music: {
      perMinute: 4,
      async run({ media }) {
        const { result } = await created(media, 'generations', { kind: 'music', prompt: 'A river', duration_seconds: 10 })
        if (result?.audio_url === undefined) throw new Error('the music has no address')
        music.push({ url: result.audio_url, endsAt: Date.now() + 300_000 })
        if (music.length > 8) music.shift()
      },
    },
    'operation on an upload': { perMinute: 2, run: async ({ media }) => void (await created(media, 'operations', { operation: 'upscale', media_url: picture, scale: 2 })) },
    'operation on an address': { perMinute: 2, run: async ({ media }) => void (await created(media, 'operations', { operation: 'upscale', media_url: receiver.pictureUrl, scale: 2 })) },
    'live events': {
      perMinute: 20,
      async run({ media }, n) {
        const { id } = await created(media, 'generations', image, 0)
        const controller = new AbortController()
        const response = await ask(200, `/api/v1/generations/${id}/events`, media, { signal: controller.signal })
        if (n % 3 > 0) return void (await response.arrayBuffer())
        await response.body?.getReader().read()
        controller.abort()
      },
    },
    'file, whole': { perMinute: 30, run: () => download({}, 200) },
    'file, range': { perMinute: 60, run: (_keys, n) => download({ range: `bytes=${n}-${n + 65_535}` }, 206) },
    'file, broken off': { perMinute: 30, run: () => download({}, 200, true) },
    lists: { perMinute: 60, run: ({ media }, n) => drained(ask(200, ['/api/v1/generations?limit=20', '/api/v1/events?limit=20', '/api/v1/usage'][n % 3] ?? '', media)) },
    tools: {
      perMinute: 20,
      run: ({ media }) => drained(ask(200, '/mcp', media, { body: { jsonrpc: '2.0', id: 1, method: 'tools/list' }, headers: { accept: 'application/json, text/event-stream', 'mcp-protocol-version': '2025-11-25' } })),
    },
    'pages, documents': { perMinute: 12, run: (_keys, n) => drained(ask(200, n % 2 ? '/openapi.json' : '/dashboard/', null)) },
    probes: { perMinute: 60, run: (_keys, n) => drained(ask(200, `${opsUrl}${n % 4 ? '/readyz' : '/metrics'}`, null)) },
  }
}

type Task = { id: string; result: { audio_url?: string } | null }
