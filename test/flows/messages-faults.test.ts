/** What clients of the Messages wire make of a full window and an overloaded upstream, and what becomes of a request that they abort. `npm run servers` installs them. */
import { mkdir, mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { openUpstream, respond, stream, type FakeUpstream, type Script } from '../fakes/upstream.ts'
import { need, noneInstalled } from '../servers/client.ts'
import { answer, post, used } from './calls.ts'
import { AGENTS } from './coding-agents.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { MESSAGES_CLIENTS, type MessagesClient, type Told } from './messages-clients.ts'
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
const OPENCODE = asking('opencode on /v1/messages')
const CLINE = asking('Cline on /v1/messages')
const ROWS: [string, MessagesClient][] = Object.entries({ ...MESSAGES_CLIENTS, 'Claude Code': asking('Claude Code'), opencode: OPENCODE, Cline: CLINE })
/** Clients that run in this process show that the wire of the upstream makes no difference; the programs, which take seconds to start, are asked over one. */
const IN_PROCESS = new Set(['anthropic-node', 'ai-sdk-anthropic'])

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

type Setting = { folder: string; program: Program; upstream: FakeUpstream; talks: Script }

async function open(t: Test, wire: WireName): Promise<Setting> {
  const talks = saying(wire, 'All done.')
  const upstream = await openUpstream(talks)
  const { folder, program } = await startOverOneWire(t, upstream, wire, { retry: { attempts: 1 }, breaker: { failures: 1000 } })
  await declare(folder, 'tiny', ...tiny('tiny', 18_000), ...tiny('short', 60))
  await declare(folder, 'one', codingPlan('one', {}, { maxConcurrentRequests: 1 }), apiKey('one-key', 'one'))
  return { folder, program, upstream, talks }
}

const ask = ({ folder, program }: Setting, client: MessagesClient, path: string, key: string, signal?: AbortSignal): Promise<Told> =>
  client.ask({ path, folder, url: program.url, key, prompt: 'Say hello', works: false, streamed: true, signal })

async function tells(t: Test, setting: Setting, client: MessagesClient, path: string, full: string): Promise<void> {
  const { program } = setting
  const earlier = refusals(program)
  t.match((await ask(setting, client, path, full)).error, /window is used up\. It resets at \d{4}-\d\d-\d\d/)
  const expected = REFUSED[client.server] ?? 1
  await eventually('the log', async () => refusals(program) - earlier >= expected || null)
  t.equal(refusals(program) - earlier, expected)
}

t.setTimeout(1_200_000)
// The first two wait for a minute, an upstream has no part in it, and the others run meanwhile.
t.jobs = 3
t.test('opencode waits until a full window resets, and goes on', { timeout: 1_200_000 }, async (t) => {
  const path = need(t, OPENCODE.server)
  if (path === null) return
  const setting = await open(t, 'messages')
  const { program } = setting
  const full = await filled(t, program, 'short')
  t.match(await ask(setting, OPENCODE, path, full), { error: null, text: /All done\./ })
  // Its answer, and a title for it, which the filled window refuses once more.
  t.ok(refusals(program) <= 4, `${refusals(program)} refusals`)
})

t.test('Cline tells when a full window resets, without a storm of requests', { timeout: 1_200_000 }, async (t) => {
  const path = need(t, CLINE.server)
  if (path === null) return
  const setting = await open(t, 'messages')
  await tells(t, setting, CLINE, path, await filled(t, setting.program, 'tiny'))
})

for (const wire of WIRES) {
  t.test(`over an upstream that speaks ${wire}`, { timeout: 1_200_000 }, async (t) => {
    const rows = ROWS.filter(([, { server }]) => wire === 'chat' || IN_PROCESS.has(server))
    if (noneInstalled(t, rows.map(([, { server }]) => server))) return
    const setting = await open(t, wire)
    const { program, upstream, talks } = setting
    const [key, one, full] = [await program.key('team-key'), await program.key('one-key'), await filled(t, program, 'tiny')]

    for (const [name, client] of rows) {
      const path = need(t, client.server)
      if (path === null) continue

      if (client !== OPENCODE && client !== CLINE) await t.test(`${name} tells when a full window resets, without a storm of requests`, (t) => tells(t, setting, client, path, full))

      await t.test(`${name} asks an overloaded upstream once more`, async (t) => {
        const earlier = upstream.requests.length
        upstream.respondWith((response, request) => (upstream.requests.length === earlier + 1 ? respond(response, 503, {}) : talks(response, request)))
        t.match(await ask(setting, client, path, key), { error: null, text: /All done\./ })
        t.ok(upstream.requests.length - earlier >= 2)
      })

      await t.test(`${name} stops the upstream when it is aborted, pays for what was read, and leaves nothing in flight`, async (t) => {
        const begun = Promise.withResolvers<void>()
        upstream.respondWith((response) => {
          stream(response, BEGUN[wire])
          begun.resolve()
        })
        const aborted = upstream.nextAbort()
        const before = await used(program, one)
        const controller = new AbortController()
        const told = ask(setting, client, path, one, controller.signal)
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
