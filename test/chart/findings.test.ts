/** What kube-score and Checkov say of the chart: nothing, without leaving out any of their checks. */
import { execFile } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { installed, missing } from '../servers/client.ts'
import type { Answered } from '../servers/kube/api.ts'
import { rendered } from './chart.ts'

const run = promisify(execFile)
/** Values as one would use them to serve customers. */
const SERVING = ['required', 'everything', 'namespaced']

/** What it printed, whatever its exit code. */
async function printed(program: string, args: string[], cwd: string): Promise<string> {
  const { stdout } = await run(program, args, { cwd, maxBuffer: 1 << 26 }).catch((error: { stdout?: string }) => ({ stdout: error.stdout ?? '' }))
  return stdout
}

if (!missing(t, ['helm', 'kube-score'])) {
  for (const name of SERVING) {
    t.test(`${name}: kube-score finds nothing`, async (t) => {
      const folder = t.testdir({ 'chart.yaml': await rendered(name) })
      const optional = ['container-security-context-privileged', 'container-seccomp-profile'].flatMap((check) => ['--enable-optional-test', check])
      const text = await printed(installed('kube-score'), ['score', '--output-format', 'ci', ...optional, 'chart.yaml'], folder)
      t.ok((text.match(/^\[OK\]/gm)?.length ?? 0) > 50)
      t.same(text.split('\n').filter((line) => /^\[(WARNING|CRITICAL)\]/.test(line)), [])
    })
  }
}

if (!missing(t, ['helm', 'checkov'])) {
  const checkov = join(dirname(installed('checkov')), 'checkov')

  const findings = async (folder: string, text: string): Promise<string[]> => {
    writeFileSync(join(folder, 'chart.yaml'), text)
    const report = JSON.parse(await printed(checkov, ['--file', 'chart.yaml', '--framework', 'kubernetes', '--skip-download', '--output', 'json', '--quiet'], folder))
    if (report.summary.passed < 300 || report.summary.skipped > 0 || report.summary.parsing_errors > 0) throw new Error(`not all was checked: ${JSON.stringify(report.summary)}`)
    return report.results.failed_checks.map(({ check_id, resource }: Answered) => `${check_id} ${resource}`)
  }

  t.test('Checkov finds that the controller may read Secrets, and nothing else', async (t) => {
    // That is true: it keeps the Secrets of keys as they must be, and RBAC knows no labels.
    t.same(await findings(t.testdir({}), await rendered('required')), ['CKV2_K8S_5 ClusterRoleBinding.default.tollgate-controller-secrets'])
  })

  for (const name of SERVING.slice(1)) {
    t.test(`${name}: Checkov finds nothing where somebody else binds the controller's rights on Secrets`, async (t) => {
      t.same(await findings(t.testdir({}), await rendered(name, ['--set', 'controller.bindSecrets=false'])), [])
    })
  }
}
