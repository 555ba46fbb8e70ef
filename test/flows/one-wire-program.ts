/** The embedded program over a fake upstream that speaks one wire alone, with the key `team-key`. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Test } from 'tap'
import type { WireName } from '../../src/upstream/wires/wire.ts'
import type { FakeUpstream } from '../fakes/upstream.ts'
import { VENDOR } from '../fakes/upstream-wire.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { start, type Program } from './program.ts'

/** Starts it. `more`: members of the upstream. The folder, the program and the upstream end with the test. */
export async function startOverOneWire(t: Test, upstream: FakeUpstream, wire: WireName, more: object = {}): Promise<{ folder: string; program: Program }> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  await writeFile(join(folder, 'upstreams.yaml'), JSON.stringify({ upstreams: [{ name: VENDOR, baseUrl: upstream.url, model: `${VENDOR}/large`, wire, ...more }] }))
  await declare(folder, 'team', codingPlan('team'), apiKey('team-key', 'team'))
  const program = await start({ folder, env: { UPSTREAMS: join(folder, 'upstreams.yaml') } })
  t.teardown(async () => {
    await program.kill()
    await upstream.close()
    await rm(folder, { recursive: true, force: true })
  })
  return { folder, program }
}
