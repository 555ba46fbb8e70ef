/** The predictions API: what is sent, and what its answers mean. Pure. */
import { notMade, type NotMade } from '../engine.ts'
import { faulty, ProviderError, type Complaint } from '../provider/failure.ts'
import type { JobStatus } from '../provider/job.ts'

/** Where a model is run. Null: that is no name of a model. */
export function targetOf(model: string | null): { path: string; fields: Record<string, string> } | null {
  const [, owner, name, version] = /^([A-Za-z0-9][\w.-]*)\/([A-Za-z0-9][\w.-]*)(?::([\w.-]+))?$/.exec(model ?? '') ?? []
  if (owner !== undefined && name !== undefined) {
    return version === undefined
      ? { path: `/models/${owner}/${name}/predictions`, fields: {} }
      : { path: '/predictions', fields: { version } }
  }
  return /^[0-9a-f]{64}$/.test(model ?? '') ? { path: '/predictions', fields: { version: model ?? '' } } : null
}

/** Errors of models that refuse the content; the API itself has no status for that. */
const REFUSED = /\bnsfw\b|\(E005\)|flagged as sensitive|content polic|moderation|safety (filter|checker|system)/i

/** Reads an RFC 9457 problem, as the API answers with. */
export function complaintOf(body: unknown): Complaint {
  const { title, detail } = (body ?? {}) as { title?: unknown; detail?: unknown }
  const text = [title, detail].filter((part) => typeof part === 'string').join(', ')
  return { text, fault: REFUSED.test(text) ? 'refused' : null }
}

/** The status of a prediction. Its `value` is the output. */
export function predictionStatus(prediction: Record<string, unknown>): JobStatus<unknown> {
  const { status, error, output, data_removed: removed } = prediction
  if (status === 'succeeded')
    return removed === true ? faulty('the output of the prediction was removed', true) : { outcome: 'ended', value: output }
  if (status === 'failed') return failed(typeof error === 'string' ? error : '')
  if (status === 'canceled' || status === 'aborted') return faulty(`the prediction was ${status} at the provider`, true)
  return { outcome: 'running', percent: null }
}

function failed(error: string): NotMade {
  const cause = new ProviderError(`the prediction failed: ${error.slice(0, 300)}`)
  return REFUSED.test(error) ? notMade('provider_rejected', false, cause) : notMade('provider_error', true, cause)
}

/**
 * The URLs of up to `count` results in an output: a URL, or those within lists and objects that end as files of the format do, or the first if none does. A list holds
 * alternatives, and an object may hold a mask or a log beside the picture.
 */
export function resultUrls(output: unknown, format: string, count: number): string[] {
  const urls = urlsIn(output)
  const fitting = urls.filter((url) => extensionOf(url) === format)
  return (fitting.length > 0 ? fitting : urls).slice(0, count)
}

function urlsIn(output: unknown, levels = 4): string[] {
  if (typeof output === 'string') return /^(https?|data):/.test(output) ? [output] : []
  return typeof output === 'object' && output !== null && levels > 0
    ? Object.values(output).flatMap((member) => urlsIn(member, levels - 1))
    : []
}

const extensionOf = (url: string): string | undefined =>
  /\.(\w+)$/
    .exec(URL.parse(url)?.pathname ?? '')?.[1]
    ?.toLowerCase()
    .replace('jpg', 'jpeg')
