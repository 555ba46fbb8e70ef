/** The tenant guide, docs/tenants.md: runs its commands in order and checks that its table has every condition reason. */
import { execFile } from 'node:child_process'
import { readFile, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { parse, stringify } from 'yaml'
import { eventually } from '../flows/eventually.ts'
import { blocksOf } from '../page-blocks.ts'
import { kubectl, kubernetes } from '../servers/kubernetes.ts'
import { openOperator } from './operator.ts'

const run = promisify(execFile)
const root = join(import.meta.dirname, '../..')
const kubeconfig = await kubernetes(t)
const guide = await readFile(join(root, 'docs/tenants.md'), 'utf8')

t.test('docs/tenants.md lists every condition reason', async (t) => {
  const source = await readFile(join(root, 'src/domain/reconcile/not-ready-reasons.ts'), 'utf8')
  const reasons = [...source.matchAll(/^ {2}([A-Z]\w+): ["']/gm)].map(([, reason]) => reason)
  t.ok(reasons.length > 15)
  t.same(reasons.filter((reason) => !new RegExp(`^\\|.*\`${reason}\`.*\\|.*\\|$`, 'm').test(guide)), [])
})

if (kubeconfig !== null) {
  t.test('the commands of docs/tenants.md work in their order', async (t) => {
    const operator = await openOperator(t, kubeconfig)
    await operator.start()
    const namespace = operator.namespace('acme')
    const folder = t.testdir({})
    const config = parse(await readFile(kubeconfig, 'utf8'))
    for (const { context } of config.contexts) context.namespace = namespace
    await writeFile(join(folder, 'kubeconfig'), stringify(config), { mode: 0o600 })
    const env = { PATH: `${dirname(kubectl())}:${process.env['PATH']}`, KUBECONFIG: join(folder, 'kubeconfig'), HOME: folder }
    await eventually('the ServiceAccount of pods', async () => ((await operator.api.request('GET', `/api/v1/namespaces/${namespace}/serviceaccounts/default`)).status === 200 ? true : null))
    const printed: string[] = []
    for (const { language, text } of blocksOf('docs/tenants.md')) {
      if (language === 'yaml') await writeFile(join(folder, /^# (\S+)/.exec(text)?.[1] ?? ''), text)
      if (language !== 'sh') continue
      for (const command of text.trim().split('\n')) {
        const { stdout } = await run('sh', ['-c', command], { cwd: folder, env }).catch((error: Error & { stderr?: string }) => {
          throw new Error(`${command}: ${error.stderr ?? error.message}`)
        })
        printed.push(stdout)
      }
    }
    const all = printed.join('')
    t.match(all, /plan\.tollgate\.dev\/coder +Coding +Active +True/)
    t.match(all, /apikey\.tollgate\.dev\/backend +coder +Active +True +Issued +svc_live_/)
    t.match(all, /^svc_live_[0-9A-Za-z]{49}/m)
    t.match(all, /^Ready True RotationInProgress: The key was rotated/m)
    // `kubectl describe` of the key that was suspended and is active again, with its Events.
    t.match(all, /^Events:\n(?:.*\n)*? +Warning +KeySuspended +.*tollgate\.dev\/controller +The key is suspended\.\n/m)
    t.match(all, /^ +Normal +Issued +.*tollgate\.dev\/controller +The key is issued and can be used\.$/m)
    t.match(all, /^apikey\.tollgate\.dev "backend" deleted/m)
  })
}
