/** What clients of the Messages wire make of a full window, an overloaded upstream and a stream that they abort. `npm run servers` installs them. */
import { mkdir, mkdtemp } from 'node:fs/promises'
import { join } from 'node:path'
import t from 'tap'
import { messageAnswer, messagesStream } from '../fakes/messages-wire.ts'
import { openUpstream, respond, streams, type Script } from '../fakes/upstream.ts'
import { need } from '../servers/client.ts'
import { post, used } from './calls.ts'
import { AGENTS } from './coding-agents.ts'
import { eventually } from './eventually.ts'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { MESSAGES_CLIENTS, type MessagesClient } from './messages-clients.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'

/** An agent as a client that is asked one question. */
function asking(name: string): MessagesClient {
  const agent = AGENTS[name]
  if (!agent) throw new Error(`no agent ${name}`)
  return {
    server: agent.server,
    tool: '',
    streamed: [true],
    async ask({ path, folder, url, key, prompt }) {
      const home = await mkdtemp(join(folder, 'home-'))
      const work = join(home, 'work')
      await mkdir(work)
      const { code, stdout, stderr } = await agent.run({ path, home, work, baseUrl: `${url}/v1`, key, prompt })
      return { text: stdout, error: code === 0 ? null : stdout + stderr }
    },
  }
}

/** The AI SDK does not know `x-should-retry` and asks three times. */
const REFUSED: Record<string, number> = { 'ai-sdk-anthropic': 3 }
/** Without the agents that are built on the AI SDK: Cline asks six times in a minute, opencode waits for the reset. */
const ROWS: [string, MessagesClient][] = [...Object.entries(MESSAGES_CLIENTS), ['Claude Code', asking('Claude Code')]]

/** Refusals of `/v1/messages` so far. */
const refusals = ({ log }: Program): number => log.filter((line) => line.includes('"route":"/v1/messages"') && line.includes('"status":429')).length

const ANSWER: Script = (response, request) =>
  request.body['stream'] ? streams(messagesStream([{ type: 'text', text: 'All done.' }]))(response, request) : respond(response, 200, messageAnswer([{ type: 'text', text: 'All done.' }]))

t.setTimeout(600_000)
t.test('a full window and an overloaded upstream', { timeout: 600_000 }, async (t) => {
  const upstream = await openUpstream(ANSWER)
  const { folder, program } = await startOverOneWire(t, upstream, 'messages', { retry: { attempts: 1 }, breaker: { failures: 1000 } })
  await declare(folder, 'tiny', codingPlan('tiny', {}, { sessionWindow: { tokens: 1, durationSeconds: 18_000 } }), apiKey('tiny-key', 'tiny'))
  const [key, tiny] = [await program.key('team-key'), await program.key('tiny-key')]
  const filled = await post(program, tiny, '/v1/messages', { model: 'svc-code', max_tokens: 10, messages: [{ role: 'user', content: 'Hi' }] })
  t.match(await filled.json(), { type: 'message' })
  await used(program, tiny)

  for (const [name, client] of ROWS) {
    const path = need(t, client.server)
    if (path === null) continue
    const asked = { path, folder, url: program.url, prompt: 'Say hello', works: false, streamed: client.streamed.at(-1) ?? true }
    await t.test(`${name} tells when a full window resets, without a storm of requests`, async (t) => {
      const earlier = refusals(program)
      const { error } = await client.ask({ ...asked, key: tiny })
      t.match(error, /window is used up\. It resets at \d{4}-\d\d-\d\d/)
      const expected = REFUSED[client.server] ?? 1
      await eventually('the log', async () => refusals(program) - earlier >= expected || null)
      t.equal(refusals(program) - earlier, expected)
    })
    await t.test(`${name} asks an overloaded upstream once more`, async (t) => {
      const earlier = upstream.requests.length
      upstream.respondWith((response, request) => (upstream.requests.length === earlier + 1 ? respond(response, 503, {}) : ANSWER(response, request)))
      t.match(await client.ask({ ...asked, key }), { error: null, text: /All done\./ })
      t.equal(upstream.requests.length - earlier, 2)
    })
  }
})
