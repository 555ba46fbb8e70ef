/** Coding agents as `docs/clients` configures them, and what each calls its tools. `npm run servers` installs them. */
import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { WIRES, type WireName } from '../../src/upstream/wires/wire.ts'
import { codexConfig } from './codex.ts'
import { REPOSITORY } from './program.ts'
import { run, type Outcome } from './run.ts'
import type { Call } from './task-model.ts'

export type Agent = {
  /** Its entry in `test/servers/list.ts`. */
  server: string
  /** It speaks Anthropic's wire. */
  messages?: true
  /** It replays what the model thought over upstreams of these wires. */
  thinks?: readonly WireName[]
  shell(command: string): Call
  read(file: string): Call
  /** Replaces `from`, which occurs once. */
  edit(file: string, from: string, to: string): Call
  /** Runs it in `work` with this prompt. */
  run(options: { path: string; home: string; work: string; baseUrl: string; key: string; prompt: string; signal?: AbortSignal | undefined }): Promise<Outcome>
}

/** The first block of this language in a client's page. */
async function documented(page: string, language: string): Promise<string> {
  const text = await readFile(join(REPOSITORY, 'docs/clients', page), 'utf8')
  const block = new RegExp(`^\`\`\`${language}\\n(.*?)^\`\`\``, 'ms').exec(text)?.[1]
  if (block === undefined) throw new Error(`docs/clients/${page} has no block of ${language}`)
  return block
}

const EXAMPLE_URL = 'http://127.0.0.1:8080/v1'

/** The variables that Claude Code's page sets, for a gateway at this address without `/v1`. */
export async function claudeEnvironment(url: string, key: string): Promise<Record<string, string>> {
  const page = await readFile(join(REPOSITORY, 'docs/clients/claude-code.md'), 'utf8')
  const variables = [...page.matchAll(/^export (\w+)=(.*)$/gm)].map(([, name = '', value = '']) => [name, value.startsWith('$(') ? key : value] as const)
  return { ...Object.fromEntries(variables), ANTHROPIC_BASE_URL: url }
}

/** The program of Claude Code, which the package has for each platform. */
export const claudeProgram = (path: string): string => join(dirname(path), `../claude-code-${process.platform}-${process.arch}/claude`)

/** `thinks`: false for one whose thinking is off. What its model thinks all the same comes back over wires on which that does not ask. */
const claudeCode = (thinks = true): Agent => ({
  server: 'claude-code',
  messages: true,
  thinks: thinks ? WIRES : ['chat', 'responses'],
  shell: (command) => ({ name: 'Bash', arguments: { command, description: 'Runs it' } }),
  read: (file) => ({ name: 'Read', arguments: { file_path: file } }),
  edit: (file, from, to) => ({ name: 'Edit', arguments: { file_path: file, old_string: from, new_string: to } }),
  async run({ path, home, work, baseUrl, key, prompt, signal }) {
    const env = { HOME: home, ...(await claudeEnvironment(new URL(baseUrl).origin, key)), ...(thinks ? {} : { MAX_THINKING_TOKENS: '0' }) }
    return run(claudeProgram(path), ['-p', '--output-format', 'json', '--allowedTools', 'Bash,Read,Edit', '--', prompt], { cwd: work, env, signal })
  },
})

const codex: Agent = {
  server: 'codex',
  thinks: ['chat', 'responses'],
  shell: (cmd) => ({ name: 'exec_command', arguments: { cmd } }),
  read: (file) => ({ name: 'exec_command', arguments: { cmd: `cat ${file}` } }),
  edit: (file, from, to) => ({ name: 'exec_command', arguments: { cmd: `sed -i 's/${from}/${to}/' ${file}` } }),
  async run({ path, home, work, baseUrl, key, prompt }) {
    await writeFile(join(home, 'config.toml'), codexConfig(baseUrl))
    const args = [path, 'exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt]
    return run(process.execPath, args, { cwd: work, env: { HOME: home, CODEX_HOME: home, TOLLGATE_API_KEY: key } })
  },
}

/** `npm`: the provider, which decides on the wire. */
const opencode = (npm: '@ai-sdk/openai-compatible' | '@ai-sdk/anthropic'): Agent => ({
  server: 'opencode',
  ...(npm === '@ai-sdk/anthropic' ? { messages: true } : {}),
  shell: (command) => ({ name: 'bash', arguments: { command, description: 'Runs it' } }),
  read: (filePath) => ({ name: 'read', arguments: { filePath } }),
  edit: (filePath, oldString, newString) => ({ name: 'edit', arguments: { filePath, oldString, newString } }),
  async run({ path, home, work, baseUrl, key, prompt, signal }) {
    const settings = JSON.parse((await documented('opencode.md', 'json')).replace(EXAMPLE_URL, baseUrl).replace('@ai-sdk/openai-compatible', npm))
    await writeFile(join(work, 'opencode.json'), JSON.stringify({ ...settings, autoupdate: false, permission: 'allow' }))
    await writeFile(join(home, 'prompt.txt'), prompt)
    const binary = join(dirname(path), `../opencode-${process.platform}-${process.arch}/bin/opencode`)
    const env = { HOME: home, OPENCODE_DISABLE_MODELS_FETCH: '1', OPENCODE_DISABLE_AUTOUPDATE: '1', npm_config_offline: 'true', TOLLGATE_API_KEY: key }
    return run('sh', ['-c', '"$0" run --format json < "$HOME/prompt.txt"', binary], { cwd: work, env, signal })
  },
})

const qwenCode: Agent = {
  server: 'qwen-code',
  shell: (command) => ({ name: 'run_shell_command', arguments: { command, is_background: false } }),
  read: (file) => ({ name: 'read_file', arguments: { file_path: file } }),
  edit: (file, from, to) => ({ name: 'edit', arguments: { file_path: file, old_string: from, new_string: to } }),
  async run({ path, home, work, baseUrl, key, prompt }) {
    await mkdir(join(home, '.qwen'))
    await writeFile(join(home, '.qwen/settings.json'), JSON.stringify({ security: { auth: { selectedType: 'openai' } }, general: { disableAutoUpdate: true }, privacy: { usageStatisticsEnabled: false } }))
    const env = { HOME: home, OPENAI_API_KEY: key, OPENAI_BASE_URL: baseUrl, OPENAI_MODEL: 'svc-code' }
    return run(process.execPath, [path, '--yolo', '--output-format', 'json', '-p', prompt], { cwd: work, env })
  },
}

const clineProgram = (path: string): string => join(dirname(path), `../@cline/cli-${process.platform}-${process.arch}/bin/cline`)

/** Without a hub, a process that would outlive it. */
async function clineEnvironment(home: string): Promise<Record<string, string>> {
  const settings = join(home, 'settings.json')
  await writeFile(settings, JSON.stringify({ telemetryOptOut: true, autoUpdateEnabled: false }))
  return { HOME: home, CLINE_GLOBAL_SETTINGS_PATH: settings, CLINE_SESSION_BACKEND_MODE: 'local' }
}

const cline: Agent = {
  server: 'cline',
  shell: (command) => ({ name: 'run_commands', arguments: { commands: [command] } }),
  read: (path) => ({ name: 'read_files', arguments: { files: [{ path }] } }),
  edit: (path, from, to) => ({ name: 'editor', arguments: { path, old_text: from, new_text: to } }),
  async run({ path, home, work, baseUrl, key, prompt }) {
    const env = await clineEnvironment(home)
    const configured = await run(clineProgram(path), ['auth', '--provider', 'openai-compatible', '--apikey', key, '--modelid', 'svc-code', '--baseurl', baseUrl], { cwd: work, env })
    if (configured.code !== 0) return configured
    return run(clineProgram(path), ['-P', 'openai-compatible', '--json', prompt], { cwd: work, env })
  },
}

const clineByAnthropic: Agent = {
  ...cline,
  messages: true,
  async run({ path, home, work, baseUrl, key, prompt, signal }) {
    const folder = join(home, '.cline/data/settings')
    await mkdir(folder, { recursive: true })
    await writeFile(join(folder, 'providers.json'), (await documented('cline.md', 'json')).replace(EXAMPLE_URL, baseUrl).replace('svc_live_…', key))
    return run(clineProgram(path), ['-P', 'anthropic', '--json', prompt], { cwd: work, env: await clineEnvironment(home), signal })
  },
}

const continueCli: Agent = {
  server: 'continue-cli',
  shell: (command) => ({ name: 'Bash', arguments: { command } }),
  read: (filepath) => ({ name: 'Read', arguments: { filepath } }),
  edit: (file, from, to) => ({ name: 'Edit', arguments: { file_path: file, old_string: from, new_string: to } }),
  async run({ path, home, work, baseUrl, key, prompt }) {
    const config = join(home, 'config.yaml')
    await writeFile(config, (await documented('continue.md', 'yaml')).replace(EXAMPLE_URL, baseUrl).replace('svc_live_…', key))
    return run(process.execPath, [path, '--auto', '-p', prompt, '--config', config], { cwd: work, env: { HOME: home, CONTINUE_CLI_ENABLE_TELEMETRY: '0' } })
  },
}

/** `api`: how it names the endpoint. */
const pi = (api: 'openai-completions' | 'openai-responses'): Agent => ({
  server: 'pi',
  shell: (command) => ({ name: 'bash', arguments: { command } }),
  read: (path) => ({ name: 'read', arguments: { path } }),
  edit: (path, oldText, newText) => ({ name: 'edit', arguments: { path, edits: [{ oldText, newText }] } }),
  async run({ path, home, work, baseUrl, key, prompt }) {
    await mkdir(join(home, '.pi/agent'), { recursive: true })
    await writeFile(join(home, '.pi/agent/models.json'), (await documented('pi.md', 'json')).replace(EXAMPLE_URL, baseUrl).replace('openai-completions', api))
    return run(process.execPath, [path, '--offline', '--model', 'tollgate/svc-code', '-p', prompt], { cwd: work, env: { HOME: home, TOLLGATE_API_KEY: key } })
  },
})

export const AGENTS: Record<string, Agent> = {
  Codex: codex,
  opencode: opencode('@ai-sdk/openai-compatible'),
  'Qwen Code': qwenCode,
  Cline: cline,
  Continue: continueCli,
  pi: pi('openai-completions'),
  'pi on /v1/responses': pi('openai-responses'),
  'Claude Code': claudeCode(),
  'Claude Code without thinking': claudeCode(false),
  'opencode on /v1/messages': opencode('@ai-sdk/anthropic'),
  'Cline on /v1/messages': clineByAnthropic,
}
