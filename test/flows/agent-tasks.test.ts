/** Real agents work on a task of several turns over an upstream of one wire: they run tests, read and edit files, and report. `npm run servers` installs them. */
import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openUpstream, type FakeUpstream } from '../fakes/upstream.ts'
import { RESPONSE_USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import { need } from '../servers/client.ts'
import { used } from './calls.ts'
import { AGENTS, type Agent } from './coding-agents.ts'
import { startOverOneWire } from './one-wire-program.ts'
import type { Program } from './program.ts'
import { SIDE_TIMEOUT_MS } from './sides.ts'
import { callId, taskModel, THOUGHT, type Task } from './task-model.ts'

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

/** Runs the test, reads two files at once, edits one, runs the test again, reads what both runs found, and reports it. */
function taskOf(agent: Agent, work: string): Task {
  const test = agent.shell(`${process.execPath} test.mjs`)
  return {
    turns: [
      [test],
      [agent.read(join(work, 'sum.mjs')), agent.read(join(work, 'test.mjs'))],
      [agent.edit(join(work, 'sum.mjs'), 'a - b', 'a + b')],
      [test],
      [agent.read(join(work, 'found.txt'))],
    ],
    last: (results) => `The test failed first: ${results[5]?.includes(WRONG_SUM)}. Now ${results[5]?.includes(PASSED) ? PASSED : `it says ${results[5]}`}.`,
  }
}

t.setTimeout(SIDE_TIMEOUT_MS)
for (const wire of ['chat', 'responses'] as const) {
  t.test(`agents over an upstream that speaks ${wire} alone`, { timeout: SIDE_TIMEOUT_MS }, async (t) => {
    const upstream = await openUpstream()
    const { folder, program } = await startOverOneWire(t, upstream, wire)
    for (const [name, agent] of Object.entries(AGENTS)) {
      t.test(`${name} mends a program in six turns`, { timeout: SIDE_TIMEOUT_MS }, (t) => mend(t, agent, { folder, program, upstream, wire }))
    }
  })
}

type Setting = { folder: string; program: Program; upstream: FakeUpstream; wire: 'chat' | 'responses' }

async function mend(t: Test, agent: Agent, { folder, program, upstream, wire }: Setting): Promise<void> {
  const path = need(t, agent.server)
  if (path === null) return
  const home = await mkdtemp(join(folder, 'home-'))
  const work = join(home, 'work')
  await mkdir(work)
  await writeFile(join(work, 'sum.mjs'), WRONG)
  await writeFile(join(work, 'test.mjs'), TEST)
  const key = await program.key('team-key')
  const [before, earlier] = [await used(program, key), upstream.requests.length]
  upstream.respondWith(taskModel(wire, taskOf(agent, work)))
  const { code, stdout, stderr } = await agent.run({ path, home, work, baseUrl: `${program.url}/v1`, key, prompt: 'Mend sum.mjs, so that test.mjs passes.' })
  t.equal(code, 0, stderr)
  t.equal(await readFile(join(work, 'sum.mjs'), 'utf8'), RIGHT)
  t.match(stdout, `The test failed first: true. Now ${PASSED}.`)
  t.notOk(stdout.includes(VENDOR), 'nothing names the upstream')
  const requests = upstream.requests.slice(earlier)
  t.ok(requests.every((request) => request.path === (wire === 'chat' ? '/v1/chat/completions' : '/v1/responses')))
  checkConversation(t, requests.filter(({ body }) => body['tools']).at(-1)?.body ?? {}, wire)
  t.equal((await used(program, key)).session - before.session, requests.length * RESPONSE_USAGE.total_tokens, 'each answer is charged once, at its reported usage')
}

/** The last request brings all calls back under the upstream's ids, each followed by its result. */
function checkConversation(t: Test, body: Loose, wire: 'chat' | 'responses'): void {
  const ids = [0, 1, 2, 3, 4, 5].map(callId)
  const order = [0, 0, 1, 2, 1, 2, 3, 3, 4, 4, 5, 5].map((n) => ids[n])
  if (wire === 'chat') {
    const turns = body.messages.filter(({ role }: Loose) => role === 'assistant' || role === 'tool')
    t.same(turns.flatMap(({ tool_calls: calls, tool_call_id: id }: Loose) => id ?? calls?.map((call: Loose) => call.id) ?? []), order)
    const thoughts = turns.filter(({ role }: Loose) => role === 'assistant').map((turn: Loose) => turn.reasoning_content)
    t.ok(thoughts.every((thought: unknown) => thought === THOUGHT) || thoughts.every((thought: unknown) => thought === undefined), 'reasoning comes back unchanged where the client replays it')
    return
  }
  const calls = body.input.filter(({ type }: Loose) => type === 'function_call' || type === 'function_call_output')
  t.same(calls.map(({ call_id: id }: Loose) => id), order)
  const reasoning = body.input.filter(({ type }: Loose) => type === 'reasoning').map((item: Loose) => item.encrypted_content)
  t.ok(reasoning.every((one: unknown) => String(one).startsWith(`${VENDOR}-encrypted-`)), 'reasoning comes back as it was')
}
