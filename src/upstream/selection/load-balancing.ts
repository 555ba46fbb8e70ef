/** Load balancing: the order in which the upstreams of a wire are tried, by priority and weight. */
import type { Upstream } from '../http/connection-pool.ts'
import type { WireName } from '../wires/wire.ts'

/** All upstreams of a wire: lower priority numbers first, within a priority at random by weight. `random` returns numbers in [0, 1). */
export function candidatesFor(wire: WireName, upstreams: Iterable<Upstream>, random: () => number): Upstream[] {
  return [...upstreams]
    .filter(({ settings }) => settings.wire === wire || settings.wire === 'both')
    .map((upstream) => ({ upstream, priority: upstream.settings.priority, draw: -Math.log(1 - random()) / upstream.settings.weight }))
    .sort((a, b) => a.priority - b.priority || a.draw - b.draw)
    .map(({ upstream }) => upstream)
}
