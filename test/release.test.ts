/** What a release consists of: one version everywhere, and workflows in which actionlint finds nothing. */
import { execFile } from 'node:child_process'
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { parse } from 'yaml'
import { installed, missing } from './servers/client.ts'

const run = promisify(execFile)
const ROOT = join(import.meta.dirname, '..')
const WORKFLOWS = join(ROOT, '.github/workflows')
const read = (path: string) => readFileSync(join(ROOT, path), 'utf8')

t.test('the program, the lockfile and the chart have one version', async (t) => {
  const { version } = JSON.parse(read('package.json'))
  const chart = parse(read('charts/tollgate/Chart.yaml'))
  t.same([JSON.parse(read('package-lock.json')).version, chart.version, chart.appVersion], [version, version, version])
})

t.test('actionlint finds nothing in the workflows, and does find a broken one', async (t) => {
  if (missing(t, ['actionlint'])) return
  // shellcheck, which it runs where there is one, differs from machine to machine.
  const lint = (...files: string[]) => run(installed('actionlint'), ['-no-color', '-shellcheck=', '-pyflakes=', ...files])
  const files = readdirSync(WORKFLOWS).map((file) => join(WORKFLOWS, file))
  t.ok(files.length >= 2)
  await t.resolves(lint(...files))
  const folder = t.testdir({ 'broken.yaml': read('.github/workflows/release.yaml').replace('steps.image.outputs.digest', 'steps.picture.outputs.digest') })
  const said = await lint(join(folder, 'broken.yaml')).catch(({ stdout }: { stdout: string }) => stdout)
  t.match(said, /property "picture" is not defined/)
})
