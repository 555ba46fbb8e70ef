/**
 * What sources at addresses of others are, by their first bytes, when a task is created: what is held fits them then. It is an estimate. The run fetches and reads each source
 * anew, and its result is bounded by what is held.
 */
import type { Egress, Reply } from '../egress/egress.ts'
import { putNewest } from '../domain/bounded-map.ts'
import { mediaInfo } from '../domain/media-info.ts'
import type { SourceInfo } from '../domain/media-operations.ts'
import { takeOne, type Rate } from '../domain/rate-limit.ts'
import type { Subscription } from '../domain/subscription/subscription.ts'
import { REDIRECTS_MAX } from './fetch-inputs.ts'

/**
 * The sources at these addresses (null: not to be asked), in their order. Null for one that does not tell in time what it is, whatever the reason, and for all where too many
 * are being asked. `record` is of the plan that pays. Never rejects.
 */
export type ProbeSources = (record: Subscription, urls: readonly (string | null)[]) => Promise<SourceInfo[]>

/** For all sources of a task: a client waits for it. */
const PROBE_MS = 1500
/** Of the beginning of a source, and once more where its header continues. */
const PROBE_BYTES = 64 * 1024
/** Sources that one process asks at a time: of all plans, and of one, which is more than a task can have. */
const PROBES_MAX = { all: 128, plan: 32 }
/** Plans whose rate is remembered. */
const PLANS_MAX = 10_000

/** Opens the probing of a process. A plan has the sources of as many requests a minute probed as it may send to create tasks: those that nothing is held for count as well. */
export function openSourceProbes({ egress, clock }: { egress: Pick<Egress, 'request'>; clock: () => number }): ProbeSources {
  const rates = new Map<string, Rate>()
  const asked = new Map<string, number>()
  let all = 0

  /** Whether a request of the plan may ask so many sources, which are counted then. */
  function enter({ id, terms }: Subscription, sources: number): boolean {
    const rate = takeOne(rates.get(id) ?? { tat: 0 }, terms.requestsPerMinute, clock())
    if (!rate.allowed || (asked.get(id) ?? 0) + sources > PROBES_MAX.plan || all + sources > PROBES_MAX.all) return false
    putNewest(rates, id, rate.rate, PLANS_MAX)
    count(id, sources)
    return true
  }

  function count(plan: string, change: number): void {
    all += change
    const now = (asked.get(plan) ?? 0) + change
    if (now > 0) asked.set(plan, now)
    else asked.delete(plan)
  }

  return async (record, urls) => {
    const distinct = [...new Set(urls.filter((url) => url !== null))]
    if (distinct.length === 0 || !enter(record, distinct.length)) return urls.map(() => null)
    try {
      const found = new Map(await Promise.all(distinct.map(async (url) => [url, await probe(egress, url).catch(() => null)] as const)))
      return urls.map((url) => (url === null ? null : (found.get(url) ?? null)))
    } finally {
      count(record.id, -distinct.length)
    }
  }
}

async function probe(egress: Pick<Egress, 'request'>, url: string): Promise<SourceInfo> {
  const first = await part(egress, url, 0, PROBE_MS)
  if (!first) return null
  const info = mediaInfo(first.bytes, first.size)
  // Such as an MP4 with its index at the end. A server that ignores ranges would send all before it.
  const leftMs = PROBE_MS - first.tookMs
  if (!info?.continuesAt || !first.isRange || leftMs <= 0) return info
  const rest = await part(egress, url, info.continuesAt, leftMs)
  return rest?.isRange ? mediaInfo(first.bytes, first.size, { at: info.continuesAt, bytes: rest.bytes }) : info
}

/** Bytes of a source from `at` on, or its first ones where its server ignores ranges. `size`: of the whole source, null where that is not told. */
type Part = { bytes: Uint8Array; size: number | null; isRange: boolean; tookMs: number }

async function part(egress: Pick<Egress, 'request'>, url: string, at: number, deadlineMs: number): Promise<Part | null> {
  const range = `bytes=${at}-${at + PROBE_BYTES - 1}`
  const limits = { deadlineMs, maxBytes: PROBE_BYTES, over: 'cut', redirects: REDIRECTS_MAX } as const
  const reply = await egress.request({ url, method: 'GET', headers: { range }, ...limits })
  return reply.outcome === 'answered' ? partOf(reply, at) : null
}

function partOf(reply: Extract<Reply, { outcome: 'answered' }>, at: number): Part | null {
  const told = reply.status === 206 ? rangeOf(reply, at) : reply.status === 200 ? wholeOf(reply) : null
  // A size below what arrived is false: nothing else is believed then.
  return told && (told.size === null || told.size >= at + reply.body.length)
    ? { ...told, bytes: reply.body, tookMs: reply.durationMs }
    : null
}

type Told = Pick<Part, 'size' | 'isRange'>

function rangeOf({ headers }: Extract<Reply, { outcome: 'answered' }>, at: number): Told | null {
  const [, from, size] = /^bytes (\d+)-\d+\/(\d+|\*)$/i.exec(String(headers['content-range'])) ?? []
  return from !== undefined && Number(from) === at ? { size: sizeOf(size), isRange: true } : null
}

function wholeOf({ headers, body }: Extract<Reply, { outcome: 'answered' }>): Told {
  return { size: body.length < PROBE_BYTES ? body.length : sizeOf(headers['content-length']), isRange: false }
}

const sizeOf = (text: unknown): number | null => (Number.isSafeInteger(Number(text)) ? Number(text) : null)
