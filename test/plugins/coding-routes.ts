/** The coding routes of a gateway scope (`gateway.ts`) over one fake upstream. */
import type { Test } from 'tap'
import openai from '../../plugins/openai/openai.ts'
import { openEgress } from '../../src/egress/egress.ts'
import { openUpstreams } from '../../src/upstream/upstreams.ts'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import { openUpstream, respond, streams, type Script } from '../fakes/upstream.ts'
import { chatStream, completion } from '../fakes/upstream-wire.ts'
import { SILENT, writeUpstreamsFile } from '../upstream/gateway.ts'
import { DERIVED, type openGateway } from './gateway.ts'

/** Answers any chat request. */
export const answers: Script = (response, received) => (received.body['stream'] ? streams(...chatStream('hi'))(response, received) : respond(response, 200, completion('hi')))

/** `facts`: more of the upstream's entry. */
export async function codingRoutes(t: Test, script?: Script, wire: WireName = 'chat', facts: object = {}) {
  const upstream = await openUpstream(script)
  const file = await writeUpstreamsFile(t, [{ name: 'a', baseUrl: upstream.url, model: 'a', wire, retry: { attempts: 1 }, ...facts }])
  const upstreams = await openUpstreams({ file, env: () => undefined, log: SILENT, pollMs: 60_000 })
  const routes: Parameters<typeof openGateway>[1] = (app) => {
    const root = app as typeof app & { upstreams: unknown }
    root.decorate('upstreams', upstreams)
    root.decorate('derivedKeys', DERIVED)
    root.decorate('egress', openEgress({ allow: [], clock: Date.now }))
    root.register(openai)
  }
  return { upstream, upstreams, routes }
}
