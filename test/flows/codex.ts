/** Codex CLI as users run it, without features that call other hosts. */
import { mkdir, mkdtemp, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { run } from './run.ts'

/** Its config.toml for a gateway at this base URL. */
export const codexConfig = (baseUrl: string) => `
model = "svc-code"
model_provider = "tollgate"
check_for_update_on_startup = false

[model_providers.tollgate]
name = "Tollgate"
base_url = "${baseUrl}"
env_key = "TOLLGATE_API_KEY"
wire_api = "responses"

[analytics]
enabled = false

[features]
plugins = false
apps = false
`

export type CodexRun = { work: string; code: number | null; events: Record<string, unknown>[]; stderr: string }

/** Runs `codex exec` with this prompt in a new folder. Its sandbox is off, since it needs rights that a container lacks; the commands are ours. */
export async function codex(path: string, folder: string, baseUrl: string, key: string, prompt: string, config = codexConfig(baseUrl)): Promise<CodexRun> {
  const home = await mkdtemp(join(folder, 'codex-'))
  const work = join(home, 'work')
  await mkdir(work)
  await writeFile(join(home, 'config.toml'), config)
  const args = [path, 'exec', '--json', '--skip-git-repo-check', '--dangerously-bypass-approvals-and-sandbox', prompt]
  const { code, stdout, stderr } = await run(process.execPath, args, { cwd: work, env: { HOME: home, CODEX_HOME: home, TOLLGATE_API_KEY: key } })
  const events: Record<string, unknown>[] = stdout.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line))
  return { work, code, events, stderr }
}
