/** Load balancing: the order in which the upstreams are tried, by priority, wire and weight. */
import type { Upstream } from '../http/upstream.ts'
import { lists } from '../policy/request-policy.ts'
import type { UpstreamCall, WireName } from '../wires/wire.ts'

/** An upstream, and the call over a wire that it speaks. */
export type Candidate = { upstream: Upstream; call: UpstreamCall }

/** By the client's wire: its own, then by the fewest and the most complete translations. Those between chat and messages go through responses. */
const PREFERENCE: Record<WireName, readonly WireName[]> = {
  chat: ['chat', 'responses', 'messages'],
  responses: ['responses', 'chat', 'messages'],
  messages: ['messages', 'responses', 'chat'],
}

const speaks = ({ settings }: Upstream, wire: WireName) => settings.wires.includes(wire)
const takes = (upstream: Upstream, { wire, needs }: UpstreamCall) =>
  speaks(upstream, wire) && (needs === undefined || lists(upstream.target.policy.allow, wire, needs))

/**
 * The upstreams for a call: lower priority numbers first, within a priority those of the client's wire before those that need a translation,
 * then the one that gave the reasoning of the conversation, which the others cannot read, then at random by weight. One that cannot read a compacted
 * conversation is none of them, unless no other can. `random` returns numbers in [0, 1).
 */
export function candidatesFor(call: UpstreamCall, upstreams: Iterable<Upstream>, random: () => number): Candidate[] {
  const candidates: Candidate[] = []
  for (const upstream of upstreams) {
    let fitting: UpstreamCall | null = call
    while (fitting && !takes(upstream, fitting)) fitting = fitting.translated
    if (fitting) candidates.push({ upstream, call: fitting })
  }
  if (candidates.length < 2) return candidates
  const able = candidates.filter((candidate) => !candidate.call.isLostTo(candidate.upstream.target.origin))
  return (able.length > 0 ? able : candidates)
    .map((candidate) => {
      const { priority, weight } = candidate.upstream.settings
      const reads = candidate.call.isReadBy(candidate.upstream.target.origin) ? 0 : 1
      return { candidate, priority, wire: candidate.call === call ? 0 : 1, reads, draw: -Math.log(1 - random()) / weight }
    })
    .sort((a, b) => a.priority - b.priority || a.wire - b.wire || a.reads - b.reads || a.draw - b.draw)
    .map(({ candidate }) => candidate)
}

/** The wires over which requests of a client's wire reach the upstreams, in the order of preference: of each upstream the preferred one. */
export function wiresFor(client: WireName, upstreams: Iterable<Upstream>): WireName[] {
  const best = [...upstreams].map((upstream) => PREFERENCE[client].find((wire) => speaks(upstream, wire)))
  return PREFERENCE[client].filter((wire) => best.includes(wire))
}
