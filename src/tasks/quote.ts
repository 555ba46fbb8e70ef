/** Quotes: from the body of a generation or operation to its price, for the Media API and for MCP. */
import { contentTypeOf } from '../domain/media-info.ts'
import { accountAt, availableToKey } from '../domain/balance.ts'
import type { EngineRequest, Engines, Offer } from '../backends/engines/engine.ts'
import { Failure, paramOfPointer, type FieldError } from '../domain/errors.ts'
import { costOf, generationOf, priceOf, type GenerationBody, type Kind, type Limits } from '../domain/media-generations.ts'
import { formatMoney, parseMoney } from '../domain/money.ts'
import {
  addressFaults,
  isOpen,
  mediaSourcesOf,
  operationFaults,
  operationOf,
  operationRequest,
  resultLimits,
  sourcesOf,
  takes,
  type OperationBody,
  type OperationRequest,
  type SourceInfo,
} from '../domain/media-operations.ts'
import type { Price } from '../domain/plans.ts'
import type { KeyVersion } from '../domain/api-keys.ts'
import { NO_HOLDS, waitingIn } from '../domain/subscription/holds.ts'
import { inactiveReason, planInactive, type Subscription } from '../domain/subscription/subscription.ts'
import type { Task } from '../domain/task.ts'
import { invalid } from '../domain/request-validation.ts'
import type { ProbeSources } from './probe-sources.ts'
import { aboveLimits, sourcesHere, type FileInfo } from './source-info.ts'
import { checkSources, mediaElsewhere, type UrlChecks, type Upload } from './source-urls.ts'
import type { TaskContext } from './task-context.ts'

export type QuoteContext = Pick<TaskContext, 'clock' | 'files'> &
  UrlChecks & { engines: Engines; fileInfo: FileInfo; probeSources: ProbeSources }

type TaskFields = { webhook_url?: string; metadata?: Record<string, string>; max_cost?: string }
/** A body that passed its schema. */
export type TaskBody = TaskFields & ((GenerationBody & { kind: Kind }) | OperationBody)

export type Quote = Pick<Task, 'object' | 'kind' | 'input'> & {
  uploads: Upload[]
  price: Price
  cancelPercent: number
  estimatedCost: number
  /** As in `Task`. */
  extendableTo: number | null
  record: Subscription
}

/**
 * Quotes a body under `record`, the subscription's as `currentRecord` read it. Throws, in this order: `invalid_request` with every faulty field, `url_not_allowed` with every
 * refused address, `not_supported` when no engine makes it, `invalid_request` for what is above the limits of the route, `plan_inactive`, `invalid_request` for sources that are here and of another kind or too large, `max_cost_exceeded`. Stores nothing.
 */
export async function quote(context: QuoteContext, body: TaskBody, record: Subscription): Promise<Quote> {
  const maxCost = body.max_cost === undefined ? null : parseMoney(body.max_cost)
  const faults = [...('operation' in body ? operationFaults(body) : []), ...addressFaults(body)]
  if (body.max_cost !== undefined && maxCost === null)
    faults.push({ path: '/max_cost', code: 'format', message: 'must be a decimal string with at most six decimals, such as "0.10"' })
  if (faults.length > 0) throw invalid(faults)
  const uploads = checkUrls(context, body)
  const kind = kindOf(body)
  const offer = context.engines.offer(kind)
  if (!offer) throw new Failure('not_supported', { param: 'operation' in body ? 'operation' : 'kind' })
  const { input, request } = complete(body, offer, uploads)
  refuseUnsupported(
    body,
    offer.unsupported(
      request,
      sourcesOf(body).map(({ role }) => role),
    ),
  )
  const reason = inactiveReason(record, context.clock())
  if (reason || !record.terms.media) throw planInactive(reason ?? 'PlanNotActive')
  const price = priceOf(offer.route, record.terms.media.prices, 'width' in request ? request.quality : undefined)
  const operation = 'width' in request ? null : request
  const here = await sourcesHere(context, body, uploads)
  refuseSources(body, here, operation, offer.route.max)
  const media = here.slice(0, mediaSourcesOf(body).length)
  const costAtMost = (infos: readonly SourceInfo[]) =>
    costOf(price, offer.quote(request, operation ? resultLimits(operation, infos, offer.route.max) : undefined))
  const most = costAtMost(media)
  const isUnknown = operation !== null && price.micro > 0 && isOpen(operation, media, price.per)
  // A max_cost below pays for no result, whatever its sources say.
  const least = isUnknown ? Math.max(1, costOf(price, offer.quote(request, { ...offer.route.max, pixels: 1, durationMs: 0 }))) : most
  const isAsked = least < most && (maxCost ?? most) >= least
  // What is held bounds the result then.
  const atMost = isAsked ? Math.min(most, maxCost ?? most) : most
  const probed = isAsked ? await context.probeSources(record, mediaElsewhere(context, body)) : []
  const estimatedCost = isAsked ? Math.min(atMost, costAtMost(media.map((info, n) => info ?? probed[n] ?? null))) : atMost
  if (maxCost !== null && estimatedCost > maxCost)
    throw new Failure('max_cost_exceeded', { beside: { required: formatMoney(estimatedCost) } })
  return {
    object: 'operation' in body ? 'operation' : 'generation',
    kind,
    input,
    uploads,
    price,
    cancelPercent: offer.route.cancelPercent,
    estimatedCost,
    extendableTo: estimatedCost < atMost ? atMost : null,
    record,
  }
}

/** `parameter` is one that the engine of the route cannot take. A length reaches an engine as the end of the section. */
function refuseUnsupported(body: TaskBody, parameter: string | null): void {
  if (parameter === null) return
  const name = parameter === 'end_time' && 'duration' in body && body.duration !== undefined ? 'duration' : parameter
  throw invalid([{ path: `/${name}`, code: 'not_allowed', message: `is not supported here for ${kindOf(body)}, or not with this value` }])
}

/** Sources that are here and would fail the task, for which money would be held until then. */
function refuseSources(body: TaskBody, here: readonly SourceInfo[], operation: OperationRequest | null, max: Limits): void {
  const kind = kindOf(body)
  let left = max.bytes
  const errors = sourcesOf(body).flatMap(({ path, role }, n): FieldError[] => {
    const info = here[n]
    if (!info) return []
    left -= info.bytes ?? 0
    if (!takes(kind, role, info.contentType))
      return [{ path, code: 'not_allowed', message: `is ${info.contentType}, which ${kind} does not take` }]
    const above = left < 0 ? { bytes: max.bytes } : aboveLimits(kind, operation, info, max)?.limit
    if (!above) return []
    const [limit] = Object.entries(above).map(([unit, most]) => `${most} ${unit}`)
    return [{ path, code: 'maximum', message: `is too large: the sources of ${kind} have at most ${limit}${left < 0 ? ' together' : ''}` }]
  })
  if (errors.length > 0) throw invalid(errors)
}

function kindOf(body: TaskBody): string {
  return 'operation' in body ? body.operation : body.kind
}

/** Names are resolved when they are used, never here: a refusal would tell a stranger what our resolver knows. */
function checkUrls(context: UrlChecks, body: TaskBody): Upload[] {
  const webhook = body.webhook_url === undefined ? null : context.refusedUrl(body.webhook_url)
  const { errors, uploads } = checkSources(context, body)
  if (webhook !== null) errors.push({ path: '/webhook_url', code: 'url_not_allowed', message: webhook })
  const [first] = errors
  if (first) throw new Failure('url_not_allowed', { message: first.message, param: paramOfPointer(first.path), errors })
  return uploads
}

/** The input that is stored, and the request that the engine would run. */
function complete(
  body: TaskBody,
  { route, formats, options }: Offer,
  uploads: readonly Upload[],
): { input: Task['input']; request: EngineRequest } {
  // What the record shows in place of an upload.
  const stored = Object.fromEntries(
    uploads.map(({ field, bytes }) => [field, { content_type: contentTypeOf(bytes) ?? 'application/octet-stream', bytes: bytes.length }]),
  )
  if ('operation' in body) {
    const found = operationOf(body, formats)
    if (found.outcome === 'invalid') throw invalid(found.errors)
    const input = { ...found.input, ...stored }
    return { input, request: operationRequest(body.operation, input, formats[0]) }
  }
  const found = generationOf(body.kind, body, route, formats, options)
  if (found.outcome === 'invalid') throw invalid(found.errors)
  const { kind: _verb, ...input } = found.request
  return { input: { ...input, ...(body.image_url !== undefined && { image_url: body.image_url }), ...stored }, request: found.request }
}

/** The answer to a dry run: the price, and whether it could be paid now. */
export function publicQuote(
  { object, kind, estimatedCost, record }: Quote,
  { key }: { key: Pick<KeyVersion, 'keyId' | 'cap'> },
  now: number,
  estimatedWaitSeconds: number | null,
): Record<string, unknown> {
  const account = accountAt(record, now)
  const available = account ? availableToKey(account, key) : 0
  return {
    object: 'quote',
    [object === 'operation' ? 'operation' : 'kind']: kind,
    estimated_cost: formatMoney(estimatedCost),
    available: formatMoney(available),
    affordable: estimatedCost <= available,
    queue_position: waitingIn(record.media?.holds ?? NO_HOLDS) + 1,
    estimated_wait_seconds: estimatedWaitSeconds,
  }
}
