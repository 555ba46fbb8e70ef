/** The alerts of the chart: each fires and does not fire as it should, by promtool, and leads to its runbook. */
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { parse } from 'yaml'
import { CHART } from '../../charts/generate.ts'
import { readCommandLine } from '../../src/bootstrap/command-line.ts'
import { need } from '../servers/client.ts'
import { ALERT_CASES, type AlertCase } from './alert-cases.ts'
import { runbookCommands } from './runbook-commands.ts'

const ROOT = join(import.meta.dirname, '../..')
const FILE = join(CHART, 'files/alerts.yaml')

type Rule = { alert?: string; record?: string; expr: string; annotations?: { summary: string; runbook_url: string } }

const { groups } = parse(readFileSync(FILE, 'utf8')) as { groups: { rules: Rule[] }[] }
const rules = groups.flatMap((group) => group.rules)
const alerts = rules.filter(({ alert }) => alert !== undefined)

t.test('every alert leads to a runbook, and every runbook is of an alert', async (t) => {
  for (const { alert, annotations } of alerts) {
    t.equal(annotations?.runbook_url, `docs/runbooks/${alert}.md`)
    t.ok(existsSync(join(ROOT, annotations?.runbook_url ?? '')), `${alert} has a page`)
  }
  t.same(readdirSync(join(ROOT, 'docs/runbooks')).filter((file) => file.startsWith('Tollgate')).sort(), [...new Set(alerts.map(({ alert }) => `${alert}.md`))].sort())
})

t.test('a runbook says what the alert means, what users see, three queries and what to do', async (t) => {
  for (const { alert } of alerts) {
    const page = readFileSync(join(ROOT, 'docs/runbooks', `${alert}.md`), 'utf8')
    t.same([...page.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => heading), [alert, 'What it means', 'What users see', 'Queries', 'What to do'])
    const [, block = ''] = /```promql\n([^`]+)```/.exec(page) ?? []
    t.equal(block.trim().split('\n').filter((line) => !line.startsWith('#')).length, 3, `${alert}: three queries`)
  }
})

t.test('every command of a runbook is complete: it runs in a pod and names its namespace', async (t) => {
  const commands = runbookCommands()
  t.ok(commands.filter(({ command }) => command.includes(' exec ')).length >= 8)
  for (const { page, command } of commands) {
    t.notMatch(command, /^(npx )?tollgate /, `${page}: no cluster has the bare program`)
    if (!/^kubectl cordon | --all-namespaces/.test(command)) t.match(command, / --namespace <(namespace|tenant)>/, `${page}: ${command}`)
    const [, words] = / exec deployment\/tollgate-controller -- node bin\/tollgate\.mjs (.+)$/.exec(command) ?? []
    if (words !== undefined && words !== 'verify') t.doesNotThrow(() => readCommandLine(words.split(' ')), `${page}: ${command}`)
  }
})

t.test('each rule reads metrics that exist', async (t) => {
  const documented = new Set([...readFileSync(join(ROOT, 'docs/metrics.md'), 'utf8').matchAll(/^\| `(\w+)` \|/gm)].map(([, name]) => name))
  const pages = alerts.map(({ alert }) => /```promql\n([^`]+)```/.exec(readFileSync(join(ROOT, 'docs/runbooks', `${alert}.md`), 'utf8'))?.[1] ?? '')
  const named = [...rules.map(({ expr }) => expr), ...pages].flatMap((text) => [...text.matchAll(/\b(?:tollgate|controller_runtime|workqueue|rest_client|leader_election)_\w+/g)].map(([name]) => name))
  // A pattern of names ends in an underscore.
  t.same([...new Set(named)].filter((name) => !name.endsWith('_') && !documented.has(name) && !documented.has(name.replace(/_(bucket|count|sum)$/, ''))), [])
})

type Series = Record<string, string>

/** A test of promtool: the alert of the case, or none, fires on the series. */
function testOf({ alert, labels, at }: AlertCase, series: Series, fires: boolean) {
  const shown = Object.entries({ alertname: alert, alertstate: 'firing', namespace: 'gate', ...labels }).map(([name, value]) => `${name}="${value}"`)
  const expr = `ALERTS{alertname="${alert}",alertstate="firing",severity="${labels['severity']}"}`
  return {
    interval: '1m',
    input_series: Object.entries(series).map(([name, values]) => ({ series: name, values })),
    promql_expr_test: [{ expr, eval_time: at, exp_samples: fires ? [{ labels: `ALERTS{${shown.join(',')}}`, value: 1 }] : [] }],
  }
}

const prometheus = need(t, 'prometheus')
if (prometheus !== null) {
  const promtool = (...args: string[]) => spawnSync(join(prometheus, '../promtool'), args, { encoding: 'utf8' })

  t.test('promtool accepts the file', async (t) => {
    const { status, stdout, stderr } = promtool('check', 'rules', FILE)
    t.equal(status, 0, `${stdout}${stderr}`)
  })

  t.test('every alert is tried', async (t) => {
    const tried = ALERT_CASES.map(({ alert, labels }) => `${alert} ${labels['severity']}`)
    const all = alerts.map((rule) => `${rule.alert} ${(rule as { labels?: Record<string, string> }).labels?.['severity']}`)
    t.same([...new Set(tried)].sort(), all.sort())
  })

  for (const one of ALERT_CASES) {
    t.test(`${one.alert} fires ${Object.values(one.labels).join(' ')} at ${one.at}, and not on what is similar`, async (t) => {
      const file = join(t.testdir({}), 'test.json')
      for (const [series, fires] of [[one.fires, true], [one.quiet, false]] as const) {
        writeFileSync(file, JSON.stringify({ rule_files: [FILE], evaluation_interval: '1m', tests: [testOf(one, series, fires)] }))
        const { status, stdout, stderr } = promtool('test', 'rules', file)
        t.equal(status, 0, `${fires ? 'fires' : 'quiet'}: ${stdout}${stderr}`)
      }
    })
  }
}
