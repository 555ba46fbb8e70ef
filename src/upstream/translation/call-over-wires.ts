/** Makes the call of a request for the wires of the upstreams: the client's own, the other by translation, or both. */
import { Failure } from '../../domain/errors.ts'
import type { UpstreamCall, WireName } from '../wires/wire.ts'

export type CallMakers = {
  /** The client's wire. */
  own: WireName
  /** May change the request in place. */
  call(translated: UpstreamCall | null): UpstreamCall
  /** Reads the request only. Throws `unsupported_parameter`. */
  translate(): UpstreamCall
}

/** A request that cannot be translated goes to the upstreams of its own wire alone. Throws `unsupported_parameter` when there are none. */
export function callOver(wires: readonly WireName[], { own, call, translate }: CallMakers): UpstreamCall {
  if (!wires.includes(own)) return translate()
  return call(wires.length > 1 ? translatedIfPossible(translate) : null)
}

function translatedIfPossible(translate: () => UpstreamCall): UpstreamCall | null {
  try {
    return translate()
  } catch (error) {
    if (error instanceof Failure) return null
    throw error
  }
}
