/** What a request leaves behind for the slow collections of the old generation, which stop all requests for tens of milliseconds. */
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, request, type IncomingMessage } from 'node:http'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import t from 'tap'
import { apiKey, codingPlan, declare } from './manifests.ts'
import { PROGRAM, start } from './program.ts'

/** Answers DELETE with the bytes of the old generation after a collection of the young one, or, for `/whole`, of both. */
const COLLECTS = `import { Server } from 'node:http'
import { getHeapSpaceStatistics } from 'node:v8'
const emit = Server.prototype.emit
Server.prototype.emit = function (name, request, response) {
  if (name !== 'request' || request.method !== 'DELETE') return emit.apply(this, arguments)
  gc(request.url === '/whole' ? undefined : { type: 'minor' })
  response.end(String(getHeapSpaceStatistics().reduce((sum, { space_name: name, space_used_size: bytes }) => sum + (name.startsWith('new') ? 0 : bytes), 0)))
}`
/** A young generation that is collected only by DELETE. */
const FLAGS = ['--expose-gc', '--min-semi-space-size=64', '--max-semi-space-size=64']
const CONNECTIONS = 4
const AT_ONCE = 40
const ROUNDS = 6
/** A request with its answer allocates ten times as much, and what it still reaches when it has ended is half of this. */
const MOST_BYTES = 5_000

t.test('a coding request leaves next to nothing in the old generation', { timeout: 120_000 }, async (t) => {
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  await declare(folder, 'plans', codingPlan('coder', { requestsPerMinute: 100_000 }), apiKey('coding', 'coder'))
  const program = await start({ folder, argv: [process.execPath, ...FLAGS, '--import', `data:text/javascript,${encodeURIComponent(COLLECTS)}`, PROGRAM] })
  const agents = Array.from({ length: CONNECTIONS }, () => new Agent({ keepAlive: true, maxSockets: 1 }))
  t.teardown(async () => {
    for (const agent of agents) agent.destroy()
    await program.stop()
    await rm(folder, { recursive: true, force: true })
  })
  const key = await program.key('coding')

  async function send(method: string, path: string, n = 0, body = ''): Promise<string> {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' }
    const answer = await new Promise<IncomingMessage>((resolve, reject) =>
      request(`${program.url}${path}`, { method, headers, agent: agents[n % CONNECTIONS] }, resolve).once('error', reject).end(body),
    )
    if (answer.statusCode !== 200) throw new Error(`${path} answered ${answer.statusCode}: ${await text(answer)}`)
    return text(answer)
  }

  for (const stream of [false, true]) {
    const body = JSON.stringify({ model: 'svc-code', max_tokens: 64, stream, messages: [{ role: 'user', content: 'hello '.repeat(50) }] })
    const round = async (): Promise<number> => {
      for (let n = 0; n < AT_ONCE; n++) await send('POST', '/v1/chat/completions', n, body)
      return Number(await send('DELETE', '/young'))
    }
    for (let warm = 0; warm < ROUNDS; warm++) await round()
    const before = Number(await send('DELETE', '/whole'))
    let after = before
    for (let counted = 0; counted < ROUNDS; counted++) after = await round()
    const bytes = (after - before) / (ROUNDS * AT_ONCE)
    t.ok(bytes < MOST_BYTES, `${Math.round(bytes)} bytes of ${stream ? 'a stream' : 'a JSON request'}`)
  }
})
