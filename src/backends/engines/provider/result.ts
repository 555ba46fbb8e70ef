/** A result of a provider: fetched within bounds, then measured by its bytes. Types, sizes and lengths in the provider's answers are not used. */
import { pipeline } from 'node:stream/promises'
import type { Reply } from '../../../egress/egress.ts'
import { notMade, type Made, type NotMade, type EngineRequest, type Run } from '../engine.ts'
import { readMediaInfo, type MediaInfo } from '../../../domain/media-info.ts'
import { counted, openBudget } from '../../../domain/media-info/counted-length.ts'
import { amountsAtMost } from '../../../domain/media-operations.ts'
import type { Api, Call } from './api-requests.ts'
import { contentOf, openSpool, type Content } from './content.ts'
import type { Limits, Unit } from '../../../domain/media-generations.ts'
import { defectOf } from './damaged-results.ts'
import { failureOf, faulty, ProviderError, type Complaint } from './failure.ts'
import type { Outside } from './environment.ts'
import type { Reach } from './settings.ts'

export type Fetched = { outcome: 'fetched'; content: Content } | NotMade

/** The formats of results, and their content types. */
export const FORMATS: Readonly<Record<string, string>> = {
  png: 'image/png',
  jpeg: 'image/jpeg',
  webp: 'image/webp',
  mp4: 'video/mp4',
  mp3: 'audio/mpeg',
  wav: 'audio/wav',
  flac: 'audio/flac',
}

const DOWNLOAD_MS = 1_800_000
const REDIRECTS = 3
/** A few boxes lie between the beginning of a video and its index. */
const PLACES_MAX = 17
/** Encoders round to whole frames. */
const SLACK_MS = 1000

export type Results = {
  /** What a request to the API itself gives. */
  save(call: Omit<Call, 'save' | 'signal'>, run: Run, complaintOf: (body: unknown) => Complaint): Promise<Fetched>
  /** What lies under an http, https or data URL. */
  fetch(url: string, run: Run): Promise<Fetched>
}

/**
 * Fetches results through guards of their own: from the API's own origin, which may be in a private network and alone gets the key, and from what is public or
 * named in `resultHosts`. Another port of the API's host is another service.
 */
export function openResults(api: Api, reach: Reach, { openGuard, scratchFolder }: Pick<Outside, 'openGuard' | 'scratchFolder'>): Results {
  const own = openGuard(reach.isNamed ? [hostOf(reach.base)] : [])
  const others = openGuard(reach.resultHosts)

  async function spooled(limits: Limits, fill: (sink: ReturnType<typeof openSpool>['sink']) => Promise<NotMade | null>): Promise<Fetched> {
    const spool = openSpool(scratchFolder, limits.bytes)
    try {
      const failure = await fill(spool.sink)
      if (!failure) return { outcome: 'fetched', content: spool.content() }
      await spool.drop()
      return failure
    } catch (error) {
      await spool.drop()
      throw error
    }
  }

  async function download(url: string, { limits, signal }: Run): Promise<Fetched> {
    const ask = { method: 'GET', deadlineMs: DOWNLOAD_MS, maxBytes: limits.bytes, over: 'fail', redirects: 0, signal } as const
    return spooled(limits, async (sink) => {
      let reply: Reply
      let next: string | null = url
      for (let hops = 0; ; hops++) {
        const at: string = next
        const isOwn = URL.parse(at)?.origin === reach.base.origin
        const key = isOwn && hops === 0 ? reach.key() : null
        const headers = key === null ? {} : { authorization: `Bearer ${key}` }
        reply = await (isOwn ? own : others).request({ ...ask, url: at, headers, sink: () => sink })
        next = redirection(reply, at)
        if (next === null || hops === REDIRECTS) break
      }
      signal.throwIfAborted()
      return replyFailure(reply)
    })
  }

  return {
    async save(call, run, complaintOf) {
      let next: string | null = null
      const fetched = await spooled(run.limits, async (sink) => {
        const answer = await api.send({ ...call, signal: run.signal, save: (body) => pipeline(body, sink, { signal: run.signal }) })
        if (answer.outcome === 'answered' && answer.status >= 200 && answer.status < 300) return null
        next = answer.outcome === 'answered' ? locationOf(answer.status, answer.headers, reach.base.href) : null
        // Expired: another attempt makes it anew.
        if (answer.outcome === 'answered' && call.method === 'GET' && [404, 410].includes(answer.status))
          return faulty(`${call.method} ${call.path} was answered with ${answer.status}`, true)
        return unfetched(failureOf(`${call.method} ${call.path}`, answer, complaintOf))
      })
      return next === null ? fetched : download(next, run)
    },
    async fetch(url, run) {
      if (url.startsWith('data:')) return dataContent(url, run.limits)
      return download(url, run)
    },
  }
}

/** Without the brackets of an IPv6 address. */
const hostOf = ({ hostname }: URL): string => hostname.replace(/^\[|\]$/g, '')

function locationOf(status: number, headers: Record<string, string | string[] | undefined>, from: string): string | null {
  const { location } = headers
  return [301, 302, 303, 307, 308].includes(status) && typeof location === 'string' ? (URL.parse(location, from)?.href ?? null) : null
}

function redirection(reply: Reply, from: string): string | null {
  return reply.outcome === 'answered' ? locationOf(reply.status, reply.headers, from) : null
}

/** The connection or the server failed, not the result: the job that made it is kept, and paid once. */
const unfetched = (failure: NotMade): NotMade => (failure.retryable ? { ...failure, keepsJob: true } : failure)

/** Why there is no result, or null. A URL that has expired is worth another attempt: that makes a new one. */
function replyFailure(reply: Reply): NotMade | null {
  if (reply.outcome === 'refused')
    return faulty(`the address of the result is neither the API's own origin, nor public, nor in resultHosts: ${reply.reason}`, false)
  if (reply.outcome === 'failed') {
    if (reply.reason === 'timeout')
      return unfetched(notMade('provider_timeout', true, new ProviderError('fetching the result took too long')))
    return unfetched(faulty(`fetching the result failed: ${reply.reason}`, reply.reason !== 'too_large'))
  }
  if (reply.status >= 200 && reply.status < 300) return null
  const failure = faulty(`fetching the result was answered with ${reply.status}`, true)
  return reply.status === 429 || reply.status >= 500 ? unfetched(failure) : failure
}

/** A data URL (RFC 2397). */
function dataContent(url: string, { bytes }: Limits): Fetched {
  const [, isBase64, data] = /^data:[^,]*?(;base64)?,(.*)$/s.exec(url) ?? []
  if (data === undefined) return faulty('the result is a data URL without data', true)
  if (data.length > (isBase64 ? (bytes * 4) / 3 + 4 : bytes * 3)) return faulty(`the result is larger than ${bytes} bytes`, false)
  return { outcome: 'fetched', content: contentOf(isBase64 ? Buffer.from(data, 'base64') : Buffer.from(unescapeBytes(data), 'latin1')) }
}

const unescapeBytes = (text: string): string =>
  text.replace(/%([0-9a-f]{2})/gi, (_match, hex: string) => String.fromCharCode(Number.parseInt(hex, 16)))

/** What is made from a result: its facts and what it took, by its bytes. It must be of the format that was requested, and within the limits. */
export async function measured(fetched: Fetched, request: EngineRequest, limits: Limits): Promise<Made | NotMade> {
  if (fetched.outcome === 'failed') return fetched
  const { content } = fetched
  const header = await readMediaInfo(content.bytes, PLACES_MAX, content.read)
  const info = await counted(header, content.bytes, openBudget(), content.read)
  const failure = unfit(info, content.bytes, request, limits) ?? (info && (await broken(content, info.contentType)))
  if (failure !== null || info === null) {
    await content.release()
    return failure ?? faulty('the result is no media', true)
  }
  const { contentType, width, height, durationMs } = info
  const requestedMs = 'durationMs' in request ? request.durationMs : amountsAtMost(request, limits).Second
  return {
    outcome: 'made',
    body: content.body,
    bytes: content.bytes,
    release: content.release,
    contentType,
    facts: { width, height, durationMs },
    used: {
      Job: 1000,
      Second: durationMs ?? requestedMs ?? 0,
      Megapixel: Math.ceil(((width ?? 0) * (height ?? 0)) / 1000),
    },
  }
}

/** Several results as one. Those that cannot be used are left out, and are not charged; without any, it is the first failure. */
export function together(results: readonly (Made | NotMade)[]): Made | NotMade {
  const [first, ...others] = results.filter((result) => result.outcome === 'made')
  if (!first) return results.find((result) => result.outcome === 'failed') ?? faulty('the answer holds no result', true)
  const sum = (unit: Unit): number => others.reduce((total, { used }) => total + used[unit], first.used[unit])
  return { ...first, used: { Job: sum('Job'), Second: sum('Second'), Megapixel: sum('Megapixel') }, ...(others.length > 0 && { others }) }
}

/** What its header promises may not be there: the result would be paid for and could not be used. */
async function broken(content: Content, contentType: string): Promise<NotMade | null> {
  const defect = await defectOf(content, contentType)
  return defect === null ? null : faulty(`the result of ${content.bytes} bytes is broken: ${defect}`, true)
}

function unfit(info: MediaInfo | null, bytes: number, { format }: EngineRequest, limits: Limits): NotMade | null {
  if (info === null) return faulty(`the result of ${bytes} bytes is no media`, true)
  const { contentType, width, height, durationMs } = info
  if (contentType !== FORMATS[format])
    return faulty(
      `the result is ${contentType} where ${format} was requested: the formats of the entry must be those that the model makes`,
      false,
    )
  const isSound = contentType.startsWith('audio/')
  if (!isSound && (width === null || height === null)) return faulty(`the result is ${contentType} without a size: it is not whole`, true)
  if ((width ?? 0) * (height ?? 0) > limits.pixels)
    return faulty(`the result is ${width}x${height}, above the route's max.megapixels`, false)
  if ((durationMs ?? 0) > limits.durationMs + SLACK_MS)
    return faulty(`the result lasts ${durationMs} ms, above the route's max.seconds`, false)
  return null
}
