/** What clients of the Messages wire make of a full window and an overloaded upstream, and what becomes of a request that they abort, over upstreams of each wire. `npm run servers` installs them. */
import { mkdir, mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { WIRES } from '../../src/upstream/wires/wire.ts'
import { openUpstream, respond, stream } from '../fakes/upstream.ts'
import { need, noneInstalled } from '../servers/client.ts'
import { answer, post, used } from './calls.ts'
import { AGENTS } from './coding-agents.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { MESSAGES_CLIENTS, type MessagesClient } from './messages-clients.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'
import { BEGUN, saying } from './task-model.ts'

/** An agent as a client that is asked one question. To abort it is to kill it. */
function asking(name: string): MessagesClient {
  const agent = AGENTS[name]
  if (!agent) throw new Error(`no agent ${name}`)
  return {
    server: agent.server,
    tool: '',
    streamed: [true],
    aborts: true,
    async ask({ path, folder, url, key, prompt, signal }) {
      const home = await mkdtemp(join(folder, 'home-'))
      const work = join(home, 'work')
      await mkdir(work)
      const { code, stdout, stderr } = await agent.run({ path, home, work, baseUrl: `${url}/v1`, key, prompt, signal })
      return { text: stdout, error: code === 0 ? null : stdout + stderr }
    },
  }
}

/** How often a client is refused before it gives up. The AI SDK does not know `x-should-retry` and asks three times, Cline over it six times, in a minute. */
const REFUSED: Record<string, number> = { 'ai-sdk-anthropic': 3, cline: 6 }
const ROWS: [string, MessagesClient][] = [...Object.entries(MESSAGES_CLIENTS), ...['Claude Code', 'opencode on /v1/messages', 'Cline on /v1/messages'].map((name): [string, MessagesClient] => [name, asking(name)])]

/** Refusals of `/v1/messages` so far. */
const refusals = ({ log }: Program): number => log.filter((line) => line.includes('"route":"/v1/messages"') && line.includes('"status":429')).length

const HI = { model: 'svc-code', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }] }
const tiny = (name: string, durationSeconds: number) => [codingPlan(name, {}, { sessionWindow: { tokens: 1, durationSeconds } }), apiKey(`${name}-key`, name)] as const

/** A key whose session window is full. */
async function filled(t: Test, program: Program, name: string): Promise<string> {
  const key = await program.key(`${name}-key`)
  t.match(await answer(await post(program, key, '/v1/messages', HI)), { status: 200 })
  await used(program, key)
  return key
}

t.setTimeout(1_200_000)
for (const wire of WIRES) {
  t.test(`over an upstream that speaks ${wire}`, { timeout: 1_200_000 }, async (t) => {
    if (noneInstalled(t, ROWS.map(([, { server }]) => server))) return
    const talks = saying(wire, 'All done.')
    const upstream = await openUpstream(talks)
    const { folder, program } = await startOverOneWire(t, upstream, wire, { retry: { attempts: 1 }, breaker: { failures: 1000 } })
    await declare(folder, 'tiny', ...tiny('tiny', 18_000), ...tiny('short', 60))
    await declare(folder, 'one', codingPlan('one', {}, { maxConcurrentRequests: 1 }), apiKey('one-key', 'one'))
    const [key, one, full] = [await program.key('team-key'), await program.key('one-key'), await filled(t, program, 'tiny')]

    for (const [name, client] of ROWS) {
      const path = need(t, client.server)
      if (path === null) continue
      const asked = { path, folder, url: program.url, prompt: 'Say hello', works: false, streamed: client.streamed.at(-1) ?? true }

      // These two take a minute each, and an upstream has no part in it.
      const isSlow = client.server === 'opencode' || client.server === 'cline'
      if (client.server === 'opencode' && wire === 'messages')
        await t.test(`${name} waits until a full window resets, and goes on`, async (t) => {
          const earlier = refusals(program)
          t.match(await client.ask({ ...asked, key: await filled(t, program, 'short') }), { error: null, text: /All done\./ })
          // Its answer, and a title for it, which the filled window refuses once more.
          t.ok(refusals(program) - earlier <= 4, `${refusals(program) - earlier} refusals`)
        })
      else if (!isSlow || (client.server === 'cline' && wire === 'messages'))
        await t.test(`${name} tells when a full window resets, without a storm of requests`, async (t) => {
          const earlier = refusals(program)
          const { error } = await client.ask({ ...asked, key: full })
          t.match(error, /window is used up\. It resets at \d{4}-\d\d-\d\d/)
          const expected = REFUSED[client.server] ?? 1
          await eventually('the log', async () => refusals(program) - earlier >= expected || null)
          t.equal(refusals(program) - earlier, expected)
        })

      await t.test(`${name} asks an overloaded upstream once more`, async (t) => {
        const earlier = upstream.requests.length
        upstream.respondWith((response, request) => (upstream.requests.length === earlier + 1 ? respond(response, 503, {}) : talks(response, request)))
        t.match(await client.ask({ ...asked, key }), { error: null, text: /All done\./ })
        t.ok(upstream.requests.length - earlier >= 2)
      })

      if (client.aborts)
        await t.test(`${name} stops the upstream when it is aborted, pays for what was read, and leaves nothing in flight`, async (t) => {
          const begun = Promise.withResolvers<void>()
          upstream.respondWith((response) => {
            stream(response, BEGUN[wire])
            begun.resolve()
          })
          const aborted = upstream.nextAbort()
          const before = await used(program, one)
          const controller = new AbortController()
          const told = client.ask({ ...asked, key: one, streamed: true, signal: controller.signal })
          await begun.promise
          controller.abort()
          await aborted
          t.not((await told).error, null)
          // A request is sent ahead of the write of its reservation: none may be there yet.
          await eventually('the charge of what was read', async () => (await used(program, one)).session > before.session || null)
          upstream.respondWith(talks)
          t.match(await answer(await post(program, one, '/v1/messages', HI)), { status: 200 }, 'the one request that the plan may have in flight is free')
        })
    }
  })
}
