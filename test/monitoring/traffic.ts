/** A running program with traffic of every kind that the dashboards show, also of requests, models and receivers that fail. */
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import type { Test } from 'tap'
import { openReceiver } from '../fakes/receiver.ts'
import { openUpstream, respond } from '../fakes/upstream.ts'
import { chat, post } from '../flows/calls.ts'
import { apiKey, codingPlan, declare, mediaPlan } from '../flows/manifests.ts'
import { start, type Program } from '../flows/program.ts'
import { freePort } from '../servers/process.ts'

/** A few seconds. */
const TURNS_PER_KEY = 10

const FREE = { requestsPerMinute: 1_000_000 }

export type System = Program & { folder: string }

/** Starts the embedded program with its plans, a model server that fails, and `env`. */
export async function openSystem(t: Test, env: Record<string, string> = {}): Promise<System> {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  const broken = await openUpstream((response) => respond(response, 500, { error: { message: 'broken' } }))
  const upstreams = [{ name: 'main', baseUrl: 'echo:', wire: 'both' }, { name: 'broken', baseUrl: `${broken.url}/v1`, model: 'm', wire: 'both', apiKey: 'k' }]
  await writeFile(join(folder, 'upstreams.yaml'), JSON.stringify({ upstreams }))
  await declare(folder, 'plans', codingPlan('code', FREE), apiKey('code-key', 'code'), codingPlan('small', FREE, { sessionWindow: { tokens: 20, durationSeconds: 18_000 } }), apiKey('small-key', 'small'), mediaPlan('studio', FREE), apiKey('studio-key', 'studio'))
  const program = await start({ folder, env: { EGRESS_ALLOW: '127.0.0.1/32', UPSTREAMS: join(folder, 'upstreams.yaml'), ...env } })
  t.teardown(async () => {
    await program.stop()
    await broken.close()
    await rm(folder, { recursive: true, force: true })
  })
  return { ...program, folder }
}

/** Sends traffic in turns until `done`. */
export async function sendTraffic(t: Test, program: System, done: () => Promise<boolean>): Promise<void> {
  const [code, small, studio] = [await program.key('code-key'), await program.key('small-key'), await program.key('studio-key')]
  const receiver = await openReceiver(t)
  const dead = `http://127.0.0.1:${await freePort()}/hook`
  const image = (webhook: string) => post(program, studio, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '64x64', webhook_url: webhook })
  for (let edits = 1; !(await done()); edits++) {
    // The folder is read once it has been quiet for a moment: a key for each turn would never be.
    if (edits % TURNS_PER_KEY === 1) await declare(program.folder, 'edited', apiKey(`edited-${edits}`, 'code'))
    const turn = [chat(program, code), chat(program, small), chat(program, 'wrong'), image(`${receiver.url}/hook`), image(dead), image('http://10.0.0.1/hook'), fetch(`${program.url}/nothing`)]
    const streamed = post(program, code, '/v1/chat/completions', { model: 'svc-code', stream: true, messages: [{ role: 'user', content: 'Say something longer than a word' }] })
    await Promise.all([...turn, streamed.then((response) => response.text())])
    await pause(200)
  }
}
