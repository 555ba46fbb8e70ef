/** Real agents work on a task of several turns over an upstream of one wire: they run tests, read and edit files, and report. `npm run servers` installs them. */
import { mkdir, mkdtemp, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import t, { type Test } from 'tap'
import { openUpstream, type FakeUpstream } from '../fakes/upstream.ts'
import { RESPONSE_USAGE, VENDOR } from '../fakes/upstream-wire.ts'
import { need } from '../servers/client.ts'
import { used } from './calls.ts'
import { codexConfig } from './codex.ts'
import { startOverOneWire } from './one-wire-program.ts'
import { REPOSITORY, type Program } from './program.ts'
import { run } from './run.ts'
import { callId, taskModel, THOUGHT, type Call, type Task } from './task-model.ts'

type Loose = any // oxlint-disable-line typescript/no-explicit-any -- bodies of requests are compared, not typed

const PASSED = 'all 2 checks pass'
const TEST = `import { sum } from './sum.mjs'
if (sum(1, 2) !== 3 || sum(2, 2) !== 4) throw new Error('sum is wrong')
console.log('${PASSED}')
`
const WRONG = 'export const sum = (a, b) => a - b\n'
const RIGHT = 'export const sum = (a, b) => a + b\n'

/** How an agent is run, and what it calls its tools. */
type Agent = {
  server: string
  shell(command: string): Call
  read(file: string): Call
  edit(file: string): Call
  /** Runs it in `work` with this prompt. Returns what it printed. */
  run(options: { path: string; home: string; work: string; baseUrl: string; key: string; prompt: string }): Promise<{ code: number | null; stdout: string; stderr: string }>
}

const AGENTS: Record<string, Agent> = {
  Codex: {
    server: 'codex',
    shell: (cmd) => ({ name: 'exec_command', arguments: { cmd } }),
    read: (file) => ({ name: 'exec_command', arguments: { cmd: `cat ${file}` } }),
    edit: (file) => ({ name: 'exec_command', arguments: { cmd: `sed -i 's/a - b/a + b/' ${file}` } }),
    async run({ path, home, work, baseUrl, key, prompt }) {
      await writeFile(join(home, 'config.toml'), codexConfig(baseUrl))
      const args = [path, 'exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt]
      return run(process.execPath, args, { cwd: work, env: { HOME: home, CODEX_HOME: home, TOLLGATE_API_KEY: key } })
    },
  },
  opencode: {
    server: 'opencode',
    shell: (command) => ({ name: 'bash', arguments: { command, description: 'Runs it' } }),
    read: (filePath) => ({ name: 'read', arguments: { filePath } }),
    edit: (filePath) => ({ name: 'edit', arguments: { filePath, oldString: 'a - b', newString: 'a + b' } }),
    async run({ path, home, work, baseUrl, key, prompt }) {
      const settings = JSON.parse(/^```json\n(.*?)^```/ms.exec(await readFile(join(REPOSITORY, 'docs/clients/opencode.md'), 'utf8'))?.[1]?.replace('http://127.0.0.1:8080/v1', baseUrl) ?? '')
      await writeFile(join(work, 'opencode.json'), JSON.stringify({ ...settings, autoupdate: false, permission: 'allow' }))
      await writeFile(join(home, 'prompt.txt'), prompt)
      const binary = join(dirname(path), `../opencode-${process.platform}-${process.arch}/bin/opencode`)
      const env = { HOME: home, OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1', TOLLGATE_API_KEY: key }
      return run('sh', ['-c', '"$0" run --format json < "$HOME/prompt.txt"', binary], { cwd: work, env })
    },
  },
  'Qwen Code': {
    server: 'qwen-code',
    shell: (command) => ({ name: 'run_shell_command', arguments: { command, is_background: false } }),
    read: (file) => ({ name: 'read_file', arguments: { file_path: file } }),
    edit: (file) => ({ name: 'edit', arguments: { file_path: file, old_string: 'a - b', new_string: 'a + b' } }),
    async run({ path, home, work, baseUrl, key, prompt }) {
      await mkdir(join(home, '.qwen'))
      await writeFile(join(home, '.qwen/settings.json'), JSON.stringify({ security: { auth: { selectedType: 'openai' } }, general: { disableAutoUpdate: true }, privacy: { usageStatisticsEnabled: false } }))
      const env = { HOME: home, OPENAI_API_KEY: key, OPENAI_BASE_URL: baseUrl, OPENAI_MODEL: 'svc-code' }
      return run(process.execPath, [path, '--yolo', '--output-format', 'json', '-p', prompt], { cwd: work, env })
    },
  },
}

/** Runs the test, reads two files at once, edits one, runs the test again, and says what it printed. */
function taskOf(agent: Agent, work: string): Task {
  const test = agent.shell(`${process.execPath} test.mjs`)
  return {
    turns: [[test], [agent.read(join(work, 'sum.mjs')), agent.read(join(work, 'test.mjs'))], [agent.edit(join(work, 'sum.mjs'))], [test]],
    last: (results) => `The test failed first: ${results[0]?.includes('sum is wrong')}. Now ${results[4]?.includes(PASSED) ? PASSED : `it says ${results[4]}`}.`,
  }
}

for (const wire of ['chat', 'responses'] as const) {
  t.test(`agents over an upstream that speaks ${wire} alone`, { timeout: 900_000 }, async (t) => {
    const upstream = await openUpstream()
    const { folder, program } = await startOverOneWire(t, upstream, wire)
    for (const [name, agent] of Object.entries(AGENTS)) {
      t.test(`${name} mends a program in five turns`, { timeout: 300_000 }, (t) => mend(t, agent, { folder, program, upstream, wire }))
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
  const ids = [0, 1, 2, 3, 4].map(callId)
  if (wire === 'chat') {
    const turns = body.messages.filter(({ role }: Loose) => role === 'assistant' || role === 'tool')
    t.same(turns.flatMap(({ tool_calls: calls, tool_call_id: id }: Loose) => id ?? calls?.map((call: Loose) => call.id) ?? []), [0, 0, 1, 2, 1, 2, 3, 3, 4, 4].map((n) => ids[n]))
    const thoughts = turns.filter(({ role }: Loose) => role === 'assistant').map((turn: Loose) => turn.reasoning_content)
    t.ok(thoughts.every((thought: unknown) => thought === THOUGHT) || thoughts.every((thought: unknown) => thought === undefined), 'reasoning comes back unchanged where the client replays it')
    return
  }
  const calls = body.input.filter(({ type }: Loose) => type === 'function_call' || type === 'function_call_output')
  t.same(calls.map(({ call_id: id }: Loose) => id), [0, 0, 1, 2, 1, 2, 3, 3, 4, 4].map((n) => ids[n]))
  const reasoning = body.input.filter(({ type }: Loose) => type === 'reasoning').map((item: Loose) => item.encrypted_content)
  t.ok(reasoning.every((one: unknown) => String(one).startsWith(`${VENDOR}-encrypted-`)), 'reasoning comes back as it was')
}
