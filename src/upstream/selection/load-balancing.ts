/** Load balancing: the order in which the upstreams are tried, by priority, wire and weight. */
import type { Upstream } from '../http/connection-pool.ts'
import type { UpstreamCall, WireName } from '../wires/wire.ts'

/** An upstream, and the call over a wire that it speaks. */
export type Candidate = { upstream: Upstream; call: UpstreamCall }

const speaks = ({ settings }: Upstream, wire: WireName) => settings.wire === wire || settings.wire === 'both'

/**
 * The upstreams for a call: lower priority numbers first, within a priority those of the client's wire before those that need a translation,
 * then at random by weight. `random` returns numbers in [0, 1).
 */
export function candidatesFor(call: UpstreamCall, upstreams: Iterable<Upstream>, random: () => number): Candidate[] {
  const { translated } = call
  const candidates: Candidate[] = []
  for (const upstream of upstreams) {
    const fitting = speaks(upstream, call.wire) ? call : translated
    if (fitting && speaks(upstream, fitting.wire)) candidates.push({ upstream, call: fitting })
  }
  if (candidates.length < 2) return candidates
  return candidates
    .map((candidate) => {
      const { priority, weight } = candidate.upstream.settings
      return { candidate, priority, wire: candidate.call === call ? 0 : 1, draw: -Math.log(1 - random()) / weight }
    })
    .sort((a, b) => a.priority - b.priority || a.wire - b.wire || a.draw - b.draw)
    .map(({ candidate }) => candidate)
}

/** The wires over which a request of a client's wire reaches the upstreams: its own where an upstream speaks it, else the other. */
export function wiresFor(wire: WireName, upstreams: Iterable<Upstream>): WireName[] {
  const other = wire === 'chat' ? 'responses' : 'chat'
  return [...new Set([...upstreams].map((upstream) => (speaks(upstream, wire) ? wire : other)))]
}
