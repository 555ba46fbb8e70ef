/**
 * What sources at addresses of others are, by their first bytes, when a task is created: what is held fits them then. It is an estimate. The run fetches and reads each source
 * anew, and its result is bounded by what is held.
 */
import { openCounts } from '../domain/counts-by-name.ts'
import type { Egress, Reply } from '../egress/egress.ts'
import { mediaInfo } from '../domain/media-info.ts'
import type { SourceInfo } from '../domain/media-operations.ts'
import { tenantOf } from '../domain/plans.ts'
import { rememberRates } from '../domain/rate-limit.ts'
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
/** Sources that one process asks at a time: of all tenants, of one, which is more than a task can have, and of one host, which none of them may own. */
const PROBES_MAX = { all: 128, tenant: 32, host: 4 }
/** Plans whose rate is remembered. */
const PLANS_MAX = 10_000

type Asking = Pick<Egress, 'request'>

/** Opens the probing of a process. A plan has the sources of as many requests a minute probed as it may send to create tasks: those that nothing is held for count as well. */
export function openSourceProbes({
  egress,
  clock,
  deadlineMs = PROBE_MS,
}: {
  egress: Asking
  clock: () => number
  deadlineMs?: number
}): ProbeSources {
  const takeOneOf = rememberRates(PLANS_MAX)
  const tenants = openCounts()
  const hosts = openCounts()
  let all = 0

  /** Whether a request of the plan may ask so many sources, which are counted then. */
  function enter({ id, terms }: Subscription, sources: number): boolean {
    if (tenants.of(tenantOf(id)) + sources > PROBES_MAX.tenant || all + sources > PROBES_MAX.all) return false
    if (!takeOneOf(id, terms.requestsPerMinute, clock()).allowed) return false
    count(id, sources)
    return true
  }

  function count(plan: string, change: number): void {
    all += change
    tenants.add(tenantOf(plan), change)
  }

  /** Asks as many at a time as the host has places for, and the next ones in the time that is left. */
  async function askHost(host: string, urls: readonly string[], found: Map<string, SourceInfo>): Promise<void> {
    const places = Math.min(urls.length, PROBES_MAX.host - hosts.of(host))
    const waiting = urls.values()
    async function askNext(): Promise<void> {
      hosts.add(host, 1)
      let leftMs = deadlineMs
      for (let next = waiting.next(); !next.done && leftMs > 0; next = waiting.next()) {
        const { info, tookMs } = await probe(egress, next.value, leftMs).catch(() => ({ info: null, tookMs: leftMs }))
        found.set(next.value, info)
        leftMs -= tookMs
      }
      hosts.add(host, -1)
    }
    await Promise.all(Array.from({ length: places }, askNext))
  }

  return async (record, urls) => {
    const distinct = [...new Set(urls.filter((url) => url !== null))]
    if (distinct.length === 0 || !enter(record, distinct.length)) return urls.map(() => null)
    const found = new Map<string, SourceInfo>()
    await Promise.all([...Map.groupBy(distinct, hostOf)].map(([host, theirs]) => askHost(host, theirs, found)))
    count(record.id, -distinct.length)
    return urls.map((url) => (url === null ? null : (found.get(url) ?? null)))
  }
}

/** The host, without the dot that a full name may end with. */
function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).hostname.replace(/\.$/, '') : url
}

async function probe(egress: Asking, url: string, withinMs: number): Promise<{ info: SourceInfo; tookMs: number }> {
  const { part: first, tookMs } = await ask(egress, url, 0, withinMs)
  const info = first && mediaInfo(first.bytes, first.size)
  const leftMs = withinMs - tookMs
  // Such as an MP4 with its index at the end. A server that ignores ranges would send all before it.
  if (!info?.continuesAt || !first?.isRange || leftMs <= 0) return { info, tookMs }
  const { part: rest, tookMs: longer } = await ask(egress, url, info.continuesAt, leftMs)
  const read = rest?.isRange ? mediaInfo(first.bytes, first.size, { at: info.continuesAt, bytes: rest.bytes }) : info
  return { info: read, tookMs: tookMs + longer }
}

/** Bytes of a source from `at` on, or its first ones where its server ignores ranges. `size`: of the whole source, null where that is not told. */
type Part = { bytes: Uint8Array; size: number | null; isRange: boolean }

async function ask(egress: Asking, url: string, at: number, deadlineMs: number): Promise<{ part: Part | null; tookMs: number }> {
  const range = `bytes=${at}-${at + PROBE_BYTES - 1}`
  const limits = { deadlineMs, maxBytes: PROBE_BYTES, over: 'cut', redirects: REDIRECTS_MAX } as const
  const reply = await egress.request({ url, method: 'GET', headers: { range }, ...limits })
  return { part: reply.outcome === 'answered' ? partOf(reply, at) : null, tookMs: reply.durationMs }
}

function partOf(reply: Extract<Reply, { outcome: 'answered' }>, at: number): Part | null {
  const told = reply.status === 206 ? rangeOf(reply, at) : reply.status === 200 ? wholeOf(reply) : null
  // A size below what arrived is false: nothing else is believed then.
  return told && (told.size === null || told.size >= at + reply.body.length) ? { ...told, bytes: reply.body } : null
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
