/** Compatibility with real agents as MCP clients, as docs/clients configures them: each makes an image by a tool call, with the built-in echo as its model. `npm run servers` installs them. */
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import t, { type Test } from 'tap'
import { need, noneInstalled } from '../servers/client.ts'
import { get } from './calls.ts'
import { apiKey, codingPlan, declare, mediaPlan } from './manifests.ts'
import { REPOSITORY, start, type Program } from './program.ts'
import { run } from './run.ts'

type Agents = { program: Program; keys: { TOLLGATE_API_KEY: string; SVC_API_KEY: string }; /** A new home folder. */ home(): Promise<string> }

const IMAGE = { prompt: 'a lighthouse', size: '64x64', wait_seconds: 45 }

/** The code block of a kind in a section of a page of docs/clients, with the addresses of this program. */
async function documented({ program }: Agents, page: string, section: string, language: string): Promise<string> {
  const text = await readFile(join(REPOSITORY, 'docs/clients', page), 'utf8')
  const block = new RegExp(`^## ${section}\n.*?^\`\`\`${language}\n(.*?)^\`\`\``, 'ms').exec(text)?.[1]
  if (block === undefined) throw new Error(`docs/clients/${page} has no ${language} below "${section}"`)
  return block.replaceAll('http://127.0.0.1:8080', program.url)
}

async function made({ program, keys }: Agents): Promise<object[]> {
  return ((await get(program, keys.SVC_API_KEY, '/api/v1/generations')).body as { data: object[] }).data
}

/** The agent has made one image. */
async function madeOne(t: Test, agents: Agents, before: object[]): Promise<void> {
  const data = await made(agents)
  t.equal(data.length, before.length + 1)
  t.match(data[0], { kind: 'image', prompt: IMAGE.prompt, status: 'completed', result: { image_url: /^http/, width: 64 } })
}

t.test('agents over MCP', { timeout: 600_000 }, async (t) => {
  if (noneInstalled(t, ['codex', 'opencode', 'qwen-code', 'openai-agents-node'])) return
  const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
  await declare(folder, 'plans', codingPlan('team'), apiKey('team-key', 'team'), mediaPlan('studio'), apiKey('studio-key', 'studio'))
  const program = await start({ folder })
  t.teardown(async () => {
    await program.kill()
    await rm(folder, { recursive: true, force: true })
  })
  const agents: Agents = { program, keys: { TOLLGATE_API_KEY: await program.key('team-key'), SVC_API_KEY: await program.key('studio-key') }, home: () => mkdtemp(join(folder, 'home-')) }

  t.test('Codex CLI', async (t) => {
    const path = need(t, 'codex')
    if (path === null) return
    const [home, before] = [await agents.home(), await made(agents)]
    const provider = (await readFile(join(REPOSITORY, 'docs/clients/codex.md'), 'utf8')).match(/^```toml\n(.*?)^```/ms)?.[1] ?? ''
    const quiet = 'check_for_update_on_startup = false\n'
    const hosts = '\n[analytics]\nenabled = false\n[features]\nplugins = false\napps = false\n'
    const settings = provider.replaceAll('http://127.0.0.1:8080', program.url)
    const catalogue = await fetch(`${program.url}/v1/models`, { headers: { authorization: `Bearer ${agents.keys.TOLLGATE_API_KEY}` } })
    await mkdir(join(home, '.codex'))
    await writeFile(join(home, '.codex/tollgate-models.json'), await catalogue.text())
    await writeFile(join(home, 'config.toml'), quiet + settings + (await documented(agents, 'codex.md', 'Media by MCP', 'toml')) + 'startup_timeout_sec = 300\n' + hosts)
    const args = [path, 'exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', `call mcp__media__generate_image ${JSON.stringify(IMAGE)}`]
    const { code, stdout, stderr } = await run(process.execPath, args, { cwd: home, env: { HOME: home, CODEX_HOME: home, ...agents.keys } })
    t.equal(code, 0, stderr)
    const items = stdout.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line).item)
    t.match(items.findLast((item) => item?.type === 'mcp_tool_call') ?? { stdout }, { server: 'media', tool: 'generate_image', status: 'completed', result: { content: [{ type: 'text' }, { type: 'image' }, { type: 'resource_link' }] } })
    await madeOne(t, agents, before)
  })

  t.test('opencode', async (t) => {
    const path = need(t, 'opencode')
    if (path === null) return
    const [home, before] = [await agents.home(), await made(agents)]
    const provider = JSON.parse((await readFile(join(REPOSITORY, 'docs/clients/opencode.md'), 'utf8')).match(/^```json\n(.*?)^```/ms)?.[1]?.replaceAll('http://127.0.0.1:8080', program.url) ?? '')
    await writeFile(join(home, 'opencode.json'), JSON.stringify({ ...provider, ...JSON.parse(await documented(agents, 'opencode.md', 'Media by MCP', 'json')), autoupdate: false }))
    await writeFile(join(home, 'prompt.txt'), `call media_generate_image ${JSON.stringify(IMAGE)}`)
    const binary = join(dirname(path), `../opencode-${process.platform}-${process.arch}/bin/opencode`)
    // The prompt comes by stdin: as an argument it would be quoted.
    const { code, stdout, stderr } = await run('sh', ['-c', '"$0" run --format json < prompt.txt', binary], { cwd: home, env: { HOME: home, OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1', ...agents.keys } })
    t.equal(code, 0, stderr)
    const events = stdout.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line))
    t.match(events.find(({ type }) => type === 'tool_use')?.part, { tool: 'media_generate_image', state: { status: 'completed', output: /"status":"completed"/ } })
    await madeOne(t, agents, before)
  })

  t.test('Qwen Code', async (t) => {
    const path = need(t, 'qwen-code')
    if (path === null) return
    const [home, before] = [await agents.home(), await made(agents)]
    await mkdir(join(home, '.qwen'))
    const settings = JSON.parse(await documented(agents, 'qwen-code.md', 'Media by MCP', 'json'))
    await writeFile(join(home, '.qwen/settings.json'), JSON.stringify({ security: { auth: { selectedType: 'openai' } }, general: { disableAutoUpdate: true }, privacy: { usageStatisticsEnabled: false }, ...settings }))
    const { TOLLGATE_API_KEY, SVC_API_KEY } = agents.keys
    const env = { HOME: home, OPENAI_API_KEY: TOLLGATE_API_KEY, OPENAI_BASE_URL: `${program.url}/v1`, OPENAI_MODEL: 'svc-code', SVC_API_KEY }
    const args = [path, '--yolo', '--output-format', 'json', '-p', `call tool_call ${JSON.stringify({ name: 'mcp__media__generate_image', arguments: IMAGE })}`]
    const { code, stdout, stderr } = await run(process.execPath, args, { cwd: home, env })
    t.equal(code, 0, stderr)
    t.match(JSON.parse(stdout).at(-1), { type: 'result', is_error: false, result: /"status":"completed"/, stats: { tools: { byName: { mcp__media__generate_image: { success: 1 } } } } })
    await madeOne(t, agents, before)
  })

  t.test('the OpenAI Agents SDK for JavaScript', async (t) => {
    const path = need(t, 'openai-agents-node')
    if (path === null) return
    const [home, before] = [await agents.home(), await made(agents)]
    const program = (await documented(agents, 'openai-agents.md', 'JavaScript and TypeScript', 'js'))
      .replace("'@openai/agents'", JSON.stringify(pathToFileURL(path)))
      .replace("'openai'", JSON.stringify(pathToFileURL(join(dirname(path), '../../../openai/index.mjs'))))
      .replace("'Make an image of a lighthouse.'", JSON.stringify(`call generate_image ${JSON.stringify(IMAGE)}`))
    await writeFile(join(home, 'agent.mjs'), program)
    const { code, stdout, stderr } = await run(process.execPath, ['agent.mjs'], { cwd: home, env: agents.keys })
    t.equal(code, 0, stderr)
    t.match(stdout, /The tool answered: .*resource_link/s)
    await madeOne(t, agents, before)
  })
})
