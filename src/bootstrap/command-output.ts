/** What the operator's commands print for people. Pure. */
import { iso } from '../domain/iso-time.ts'
import { formatMoney } from '../domain/money.ts'
import type { CheckedBackup } from '../maintenance/check-backup.ts'
import type { Purged } from '../maintenance/purge.ts'
import type { Resealed } from '../maintenance/reseal.ts'
import type { OpenTask, Requeued } from '../maintenance/stuck-tasks.ts'
import type { Story, TaskStory } from '../maintenance/trace.ts'
import type { PlanUsage } from '../maintenance/usage.ts'

const NOT_CHANGED = 'Nothing was changed: add --yes.\n'

/** Of `tollgate usage`, of all plans or those of a tenant: a line for each, tokens and money used. */
export function usageText(plans: PlanUsage[], tenant: string | null): string {
  const rows = plans.map(({ plan, product, state, session, weekly, media }) => {
    const tokens =
      session && weekly
        ? [`session ${session.used + session.reserved} of ${session.limit}`, `week ${weekly.used + weekly.reserved} of ${weekly.limit}`]
        : []
    const money = media
      ? [
          `burned ${formatMoney(media.burned)}, held ${formatMoney(media.held)} of ${formatMoney(media.allowance)}`,
          `${media.openTasks} open tasks`,
        ]
      : []
    return [plan, product, state, ...tokens, ...money]
  })
  return table(rows, tenant === null ? 'There are no plans.' : `There are no plans of ${tenant}.`)
}

/** Of `tollgate tasks stuck`: a line for each task. */
export function stuckText(tasks: OpenTask[]): string {
  const rows = tasks.map(({ id, tenant, kind, state, ageMs, attempts, waitsFor }) => [
    tenant,
    id,
    kind,
    state,
    `${Math.round(ageMs / 60_000)} min`,
    `attempt ${attempts}`,
    `waits for ${waitsFor}`,
  ])
  return table(rows, 'No open task is that old.')
}

/** Of `tollgate tasks requeue`: what became of the task. */
export function requeueText(id: string, requeued: Requeued): string {
  switch (requeued.outcome) {
    case 'queued':
      return `Task ${id} is queued again.\n`
    case 'not_running':
      return `Task ${id} is ${requeued.state}; only a processing task can be queued again.\n`
    case 'not_found':
      return `There is no task ${id} in that namespace.\n`
  }
}

/** Of `tollgate trace`: a line for each step of a task, in the order of time, and one for a coding request. */
export function storyText(id: string, { tasks, reservation, request }: Story): string {
  if (reservation) {
    const { subscription, keyId, tokens, at } = reservation
    return `A request of plan ${subscription} with key ${keyId} is in flight: ${tokens} tokens reserved at ${iso(at)}.\n`
  }
  if (request) {
    const { subscription, keyId, at, durationMs, status, code, isComplete, charged } = request
    const ended = [status, code, isComplete ? null : 'the client left'].filter((one) => one !== null).join(' ')
    const tokens = charged === null ? 'the charge is not known' : `${charged} tokens charged`
    return `A request of plan ${subscription} with key ${keyId} at ${iso(at)}: ${ended} after ${durationMs} ms, ${tokens}. Its attempts at upstreams are in the logs: search them for "reqId":"${request.requestId ?? id}".\n`
  }
  if (tasks.length === 0)
    return `No task and none of the newest coding requests of a plan has the id ${id}. Other requests are only in the logs: search them for "reqId":"${id}". If the client chose the id, --days <n> looks through the tasks of the last n days.\n`
  return tasks.map(taskStory).join('\n')
}

function taskStory(task: TaskStory): string {
  const { id, kind, subscription, keyVersionId, requestId, state, attempts, lostLeases, error, results, deliveries } = task
  const { createdAt, startedAt, endedAt, leaseUntil, readyAt } = task
  const money = [
    ...(task.actualCost === null ? [] : [`${formatMoney(task.actualCost)} charged`]),
    ...(task.refundAmount === null ? [] : [`${formatMoney(task.refundAmount)} returned`]),
    ...(task.isHeld ? [`${formatMoney(task.estimatedCost)} still held`] : []),
  ]
  const made = results.map(({ contentType, bytes, expiresAt }) => `${contentType} of ${bytes} bytes, kept until ${iso(expiresAt)}`)
  const steps: [at: number, what: string][] = [
    [createdAt, `accepted, ${formatMoney(task.estimatedCost)} held`],
    ...(startedAt === null ? [] : [[startedAt, 'first run begun'] as [number, string]]),
    ...(endedAt === null ? [] : [[endedAt, [[state, error].filter(Boolean).join(': '), ...made, ...money].join(', ')] as [number, string]]),
    ...deliveries.flatMap(({ event, host, attempts }) =>
      attempts.map(({ at, number, statusCode, error, durationMs, redelivery }): [number, string] => [
        at,
        `webhook ${event} to ${host}, ${redelivery ? 'redelivery' : 'attempt'} ${number}: ${[statusCode, error].filter((one) => one !== null).join(' ')} after ${durationMs} ms`,
      ]),
    ),
  ]
  const now = [
    ...(endedAt === null && money.length > 0 ? [money.join(', ')] : []),
    ...(leaseUntil === null ? [] : [`running, its lease ends at ${iso(leaseUntil)}`]),
    ...(readyAt === null ? [] : [`may run from ${iso(readyAt)}`]),
    ...deliveries.map(
      ({ event, state, nextAttemptAt }) => `webhook ${event} is ${state}${nextAttemptAt === null ? '' : `, due at ${iso(nextAttemptAt)}`}`,
    ),
  ]
  const madeBy = requestId === undefined ? '' : `, made by request ${requestId}`
  return [
    `Task ${id} (${kind}) of plan ${subscription}, key ${keyVersionId}${madeBy}: ${state}, attempts: ${attempts}, lost leases: ${lostLeases}`,
    ...steps.sort(([a], [b]) => a - b).map(([at, what]) => `  ${iso(at)}  ${what}`),
    ...now.map((what) => `  now: ${what}`),
    '',
  ].join('\n')
}

/** Of `tollgate reseal`; without `write` it says how to change something. */
export function resealText({ current, older, resealed, unopened }: Resealed, write: boolean): string {
  const counts = `${current} keys are encrypted by the first line, ${older} by an older one, ${unopened.length} by none of the file.\n`
  const lost = unopened.map((id) => `No line opens key ${id}.\n`).join('')
  return `${lost}${counts}${write ? `${resealed} were encrypted anew.\n` : older > 0 ? NOT_CHANGED : ''}`
}

/** Of `tollgate purge`; without `write` it says how to change something. */
export function purgeText({ tasks, requests, events }: Purged, write: boolean): string {
  const counted = `${tasks} tasks, ${requests} coding requests and ${events} events`
  return write ? `${counted} were removed.\n` : `${counted} would be removed. ${NOT_CHANGED}`
}

/** Of `tollgate backup check`: each fault, then the counts. */
export function backupText({ checked, violations, keys, results }: CheckedBackup): string {
  const faults = [
    ...violations,
    ...keys.unopened.map((id) => `No line of the sealing key file opens key ${id}`),
    ...results.missing.map((id) => `The result of task ${id} is missing`),
  ]
  const counts = Object.entries(checked).map(([what, count]) => `${count} ${what}`)
  const summary = `${counts.join(', ')}, ${keys.current + keys.older} encrypted keys, ${results.present} results checked: ${faults.length} faults`
  return [...faults, summary, ''].join('\n')
}

/** Of `tollgate backup restored`; without `write` it says how to change something. */
export function restoredText(write: boolean): string {
  return write ? 'Events that are logged from now on come after all that readers have read.\n' : NOT_CHANGED
}

/** Rows in columns. */
function table(rows: string[][], empty: string): string {
  if (rows.length === 0) return `${empty}\n`
  const widths = rows.reduce<number[]>((most, row) => row.map((cell, n) => Math.max(most[n] ?? 0, cell.length)), [])
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, n) => cell.padEnd(widths[n] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('')
}
