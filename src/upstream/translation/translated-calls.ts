/** Makes the calls of a request for the wires of the upstreams: the client's own, and others by translation. */
import { Failure } from '../../domain/errors.ts'
import type { UpstreamCall, WireName } from '../wires/wire.ts'

export type CallMakers = {
  /** The wire of the request. */
  own: WireName
  /** By wire. That of the own wire may change the request in place; the others read it only and throw `unsupported_parameter`. */
  make: Record<WireName, () => UpstreamCall>
}

/**
 * The call over the first of the wires, linked to those over the next ones. A request that cannot be translated goes to the upstreams of the other
 * wires alone. Throws `unsupported_parameter` when no wire is left.
 */
export function callOver(wires: readonly WireName[], { own, make }: CallMakers): UpstreamCall {
  const calls = new Map<WireName, UpstreamCall>()
  let refused: unknown = null
  for (const wire of wires) {
    if (wire === own) continue
    try {
      calls.set(wire, make[wire]())
    } catch (error) {
      if (!(error instanceof Failure)) throw error
      refused ??= error
    }
  }
  if (wires.includes(own)) calls.set(own, make[own]())
  let first: UpstreamCall | null = null
  for (const wire of wires.toReversed()) {
    const call = calls.get(wire)
    if (call) first = Object.assign(call, { translated: first })
  }
  if (!first) throw refused
  return first
}
