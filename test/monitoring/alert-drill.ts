/** What the drills of alerts share: the conditions of the chart's alerts and the queries of their runbooks, with shortened times. */
import { readFileSync } from 'node:fs'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Test } from 'tap'
import { parse, stringify } from 'yaml'
import { CHART } from '../../charts/generate.ts'
import { eventually } from '../flows/eventually.ts'
import type { Program } from '../flows/program.ts'
import type { Prometheus } from '../servers/prometheus.ts'

const ROOT = join(import.meta.dirname, '../..')

type Rule = { alert?: string; expr: string }
const { groups } = parse(readFileSync(join(CHART, 'files/alerts.yaml'), 'utf8')) as { groups: { rules: Rule[] }[] }

/** The condition of an alert with windows of half a minute. `threshold`: another one. */
function conditionOf(alert: string, threshold?: [from: string, to: string]): string {
  const rule = groups.flatMap(({ rules }) => rules).find((one) => one.alert === alert)
  if (!rule) throw new Error(`there is no alert ${alert}`)
  if (threshold && !rule.expr.includes(threshold[0])) throw new Error(`${alert} has no ${threshold[0]}`)
  const expr = rule.expr.replaceAll(/\[\d+[mh]\]/g, '[30s]')
  return threshold ? expr.replaceAll(...threshold) : expr
}

/** The three queries of a runbook, with windows of half a minute. */
function queriesOf(alert: string): string[] {
  const [, block = ''] = /```promql\n([^`]+)```/.exec(readFileSync(join(ROOT, 'docs/runbooks', `${alert}.md`), 'utf8')) ?? []
  return block.trim().split('\n').map((query) => query.replaceAll(/\[\d+[mhd]\]/g, '[30s]'))
}

/** Waits until the condition holds, while `meanwhile` is repeated; then answers the queries of the runbook: for each the series as `label="…"` with their values. */
export async function drill(t: Test, prometheus: Prometheus, alert: string, meanwhile: () => Promise<unknown>, threshold?: [string, string]): Promise<string[]> {
  const condition = conditionOf(alert, threshold)
  await eventually(alert, async () => {
    await meanwhile()
    return (await prometheus.query(condition)).length > 0 ? true : null
  })
  const shown = await answersOf(prometheus, alert)
  t.comment(`${alert}: ${shown.join(' | ')}`)
  return shown
}

export async function answersOf(prometheus: Prometheus, alert: string): Promise<string[]> {
  const answers = await Promise.all(queriesOf(alert).map((query) => prometheus.query(query)))
  return answers.map((samples) => samples.map(({ metric, value }) => `${Object.values(metric).join(' ')} ${Number(value[1])}`).join('; '))
}

export const hostsOf = (...programs: { opsUrl: string }[]) => programs.map(({ opsUrl }) => new URL(opsUrl).host)
export const logHas = (program: Program, event: string) => program.log.some((line) => line.includes(`"event":"${event}"`))

/** Writes the chart's rules, recording rules included, with windows of half a minute and no waiting time; `> 30` of TollgateWebhooksLate becomes `> 2`. Returns the path. */
export async function shortenedRules(folder: string): Promise<string> {
  const shortened = groups.map((group) => ({
    ...group,
    rules: group.rules.map((rule) => ({ ...rule, expr: rule.expr.replaceAll(/\[\d+[mh]\]/g, '[30s]').replace(/> 30$/, '> 2'), ...('for' in rule ? { for: '1s' } : {}) })),
  }))
  const file = join(folder, 'alerts.yaml')
  await writeFile(file, stringify({ groups: shortened }))
  return file
}

/** Waits until Prometheus itself says that the alert fires, while `meanwhile` is repeated. */
export async function fires(prometheus: Prometheus, alert: string, meanwhile: () => Promise<unknown> = async () => {}): Promise<void> {
  await eventually(`${alert} to fire`, async () => {
    await meanwhile()
    return (await prometheus.alerts()).some(({ labels, state }) => labels['alertname'] === alert && state === 'firing') ? true : null
  })
}
