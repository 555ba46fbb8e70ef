/** Real agents work on a task of several turns over an upstream of one wire: they run tests, read and edit files, and report. `npm run servers` installs them. */
import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { PATHS, WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { png } from '../backends/engines/media-samples.ts'
import { SIGNATURE } from '../fakes/messages-wire.ts'
import { openUpstream, respond, type FakeUpstream } from '../fakes/upstream.ts'
import { VENDOR } from '../fakes/upstream-wire.ts'
import { need, noneInstalled } from '../servers/client.ts'
import { used } from './calls.ts'
import { AGENTS, type Agent } from './coding-agents.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'
import { callId, costOf, IMAGE_OF, taskModel, THOUGHT, type Task } from './task-model.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- bodies of requests are compared, not typed

const PASSED = 'all 2 checks pass'
const WRONG_SUM = 'sum is wrong'
/** It keeps what it found: on a busy machine a client may lose the output of a command that ends at once. */
const TEST = `import { appendFileSync } from 'node:fs'
import { join } from 'node:path'
import { sum } from './sum.mjs'
const isRight = sum(1, 2) === 3 && sum(2, 2) === 4
const found = isRight ? '${PASSED}' : '${WRONG_SUM}'
appendFileSync(join(import.meta.dirname, 'found.txt'), found + '\\n')
console.log(found)
process.exitCode = isRight ? 0 : 1
`
const WRONG = 'export const sum = (a, b) => a - b\n'
const RIGHT = 'export const sum = (a, b) => a + b\n'

/** Clients of Anthropic's wire read twelve files at once, of which one is a picture. */
const MORE = [...Array.from({ length: 9 }, (_, n) => `note-${n}.txt`), 'picture.png']
const readsOf = (agent: Agent): string[] => ['sum.mjs', 'test.mjs', ...(agent.messages ? MORE : [])]

/** Runs the test, reads files at once, edits one, runs the test again, reads what both runs found, and reports it. */
function taskOf(agent: Agent, work: string): Task {
  const test = agent.shell(`${process.execPath} test.mjs`)
  return {
    turns: [
      [test],
      readsOf(agent).map((file) => agent.read(join(work, file))),
      [agent.edit(join(work, 'sum.mjs'), 'a - b', 'a + b')],
      [test],
      [agent.read(join(work, 'found.txt'))],
    ],
    last: (results) => `The test failed first: ${results.at(-1)?.includes(WRONG_SUM)}. Now ${results.at(-1)?.includes(PASSED) ? PASSED : `it says ${results.at(-1)}`}.`,
  }
}

t.setTimeout(SIDE_TIMEOUT_MS)
for (const wire of WIRES) {
  t.test(`agents over an upstream that speaks ${wire} alone`, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
    if (noneInstalled(t, Object.values(AGENTS).map(({ server }) => server))) return
    const upstream = await openUpstream()
    const { folder, program } = await startOverOneWire(t, upstream, wire)
    for (const [name, agent] of Object.entries(AGENTS)) {
      // Each client of an OpenAI wire over both of those, and one of them over the third.
      if (wire === 'messages' && !agent.messages && name !== 'Codex') continue
      t.test(`${name} mends a program in six turns`, { timeout: SIDE_TIMEOUT_MS }, (t) => mend(t, agent, { folder, program, upstream, wire }))
    }
  })
}

type Setting = { folder: string; program: Program; upstream: FakeUpstream; wire: WireName }

async function mend(t: Test, agent: Agent, { folder, program, upstream, wire }: Setting): Promise<void> {
  const path = need(t, agent.server)
  if (path === null) return
  const home = await mkdtemp(join(folder, 'home-'))
  const work = join(home, 'work')
  await mkdir(work)
  await writeFile(join(work, 'sum.mjs'), WRONG)
  await writeFile(join(work, 'test.mjs'), TEST)
  for (const file of agent.messages ? MORE : []) await writeFile(join(work, file), file.endsWith('.png') ? png(8, 8) : `This is ${file}.`)
  const key = await program.key('team-key')
  const [before, earlier] = [await used(program, key), upstream.requests.length]
  const task = taskOf(agent, work)
  const model = taskModel(wire, task)
  let refused = 0
  // As servers of thinking models do, once in this program.
  const isRefused = (body: Loose): boolean => wire === 'chat' && body.messages.some((turn: Loose) => turn.tool_calls && !turn.reasoning_content)
  upstream.respondWith((answer, request) => {
    if (!isRefused(request.body)) return model(answer, request)
    refused++
    respond(answer, 400, { error: { message: 'thinking is enabled but reasoning_content is missing in assistant tool call message at index 2' } })
  })
  const { code, stdout, stderr } = await agent.run({ path, home, work, baseUrl: `${program.url}/v1`, key, prompt: 'Mend sum.mjs, so that test.mjs passes.' })
  t.equal(code, 0, stderr)
  t.equal(await readFile(join(work, 'sum.mjs'), 'utf8'), RIGHT)
  t.match(stdout, `The test failed first: true. Now ${PASSED}.`)
  t.notOk(stdout.includes(VENDOR), 'nothing names the upstream')
  const requests = upstream.requests.slice(earlier)
  t.ok(requests.every((request) => request.path === `/v1${PATHS[wire]}`))
  checkConversation(t, requests.filter(({ body }) => body['tools']).at(-1)?.body ?? {}, wire, agent)
  t.equal((await used(program, key)).session - before.session, costOf(task, requests.length - refused - 6), 'each answer is charged once, at its reported usage')
}

/** The last request brings all calls back under the upstream's ids, each followed by its result, and the reasoning as it was where the client replays it. Chat servers of thinking models refuse a turn without. */
function checkConversation(t: Test, body: Loose, wire: WireName, agent: Agent): void {
  const { ids, thoughts } = replayed(wire, body)
  let first = 0
  for (const calls of [1, readsOf(agent).length, 1, 1, 1]) {
    const expected = Array.from({ length: calls }, (_, n) => callId(first + n, wire))
    t.same(ids.splice(0, calls), expected)
    t.same(ids.splice(0, calls).toSorted(), expected.toSorted(), 'the results, in the order in which the tools ended')
    first += calls
  }
  t.same(ids, [])
  if (agent.messages) t.ok(JSON.stringify(body).includes(IMAGE_OF[wire]), 'the picture arrived')
  const known = { chat: THOUGHT, responses: `${VENDOR}-encrypted-`, messages: SIGNATURE }[wire]
  const kept = thoughts.filter((thought) => thought !== undefined)
  const thinks = agent.thinks?.includes(wire) === true
  t.ok(kept.length === 5 || (kept.length === 0 && !thinks && wire !== 'chat'), 'of all turns, on the chat wire in any case, or of none')
  t.ok(kept.every((thought) => String(thought).startsWith(known) || (thought === ' ' && !thinks)), 'reasoning comes back unchanged, or a placeholder for it')
}

/** The ids of calls and results in their order, and what continues the reasoning of each turn. */
function replayed(wire: WireName, body: Loose): { ids: string[]; thoughts: unknown[] } {
  if (wire === 'responses') {
    const calls = body.input.filter(({ type }: Loose) => type === 'function_call' || type === 'function_call_output')
    return { ids: calls.map(({ call_id: id }: Loose) => id), thoughts: body.input.filter(({ type }: Loose) => type === 'reasoning').map((item: Loose) => item.encrypted_content) }
  }
  if (wire === 'chat') {
    const ids = body.messages.flatMap(({ tool_calls: calls, tool_call_id: id }: Loose) => id ?? calls?.map((call: Loose) => call.id) ?? [])
    return { ids, thoughts: body.messages.filter(({ role }: Loose) => role === 'assistant').map((turn: Loose) => turn.reasoning_content) }
  }
  const blocks = body.messages.flatMap(({ content }: Loose) => (Array.isArray(content) ? content : []))
  return { ids: blocks.flatMap(({ type, id, tool_use_id: answered }: Loose) => (type === 'tool_use' ? id : answered) ?? []), thoughts: blocks.filter(({ type }: Loose) => type === 'thinking').map(({ signature }: Loose) => signature) }
}
