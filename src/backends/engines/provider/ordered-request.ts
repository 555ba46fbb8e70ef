/** What a provider is asked for in place of a request: models make some lengths and sizes only. Its price is held by this. Pure. */
import type { GenerationRequest, Limits } from '../../../domain/media-generations.ts'
import type { EngineRequest } from '../engine.ts'

/** A request as it is ordered of a model, within the limits; null when the model makes nothing within them. */
export type Order = (request: GenerationRequest, model: string | null, limits: Limits) => GenerationRequest | null

/** A request as it is ordered; operations are ordered as they are. */
export function orderedRequest(order: Order, request: EngineRequest, model: string | null, limits: Limits): EngineRequest | null {
  return 'width' in request ? order(request, model, limits) : request
}

/** The length to order: of `lengths`, or of whole seconds, the nearest within the limits; null when there is none. */
export function orderedMs(durationMs: number, limits: Limits, lengths?: readonly number[]): number | null {
  const most = Math.floor(limits.durationMs / 1000)
  const choices = lengths?.map((seconds) => Math.round(seconds * 1000)) ?? [
    1000 * Math.max(1, Math.min(most, Math.round(durationMs / 1000))),
  ]
  const [best] = choices.filter((one) => one <= limits.durationMs).toSorted((a, b) => Math.abs(a - durationMs) - Math.abs(b - durationMs))
  return best ?? null
}
