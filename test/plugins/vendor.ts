/** A gateway in front of one scripted upstream that puts its vendor's name into every answer. */
import type { Test } from 'tap'
import { openUpstream, type FakeUpstream, type Script } from '../fakes/upstream.ts'
import { VENDOR } from '../fakes/upstream-wire.ts'
import { openGateway, type Gateway, type GatewayOptions } from '../upstream/gateway.ts'

export const KEY = `sk-${VENDOR}-secret`

export async function setUp(
  t: Test,
  script: Script,
  options: GatewayOptions = {},
  declared: object = {},
): Promise<{ upstream: FakeUpstream; gateway: Gateway }> {
  const upstream = await openUpstream(script)
  t.teardown(() => upstream.close())
  const one = { name: `${VENDOR}-1`, baseUrl: upstream.url, model: `${VENDOR}-large`, wire: 'both', apiKey: KEY, ...declared }
  return { upstream, gateway: await openGateway(t, { declared: [one], ...options }) }
}
