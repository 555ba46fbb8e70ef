/** Series on which each alert fires, and similar ones on which it does not, in promtool's notation: `0+60x30` is 0, 60, … 1800 in steps of a minute. */

export type AlertCase = {
  alert: string
  /** Labels of the firing alert besides `namespace`. */
  labels: Record<string, string>
  /** When it fires, such as `20m`; the quiet series are asked at the same time. */
  at: string
  fires: Record<string, string>
  quiet: Record<string, string>
}

const coding = (code: string) => `tollgate_http_requests_total{namespace="gate",product="coding",route="/v1/responses",method="POST",code="${code}"}`
/** A histogram of which all observations of a minute are at most `le`. */
function slow(name: string, labels: string, le: string, buckets: string[]): Record<string, string> {
  const at = [...buckets, '+Inf']
  return Object.fromEntries(at.map((bound) => [`${name}_bucket{namespace="gate",${labels}le="${bound}"}`, at.indexOf(bound) < at.indexOf(le) ? '0+0x400' : '0+60x400']))
}
const STORE = ['0.001', '0.005', '0.02', '0.1', '0.5', '2', '10']
const LAG = ['0.05', '0.25', '1', '5', '30', '300']
const OVERHEAD = ['0.0005', '0.001', '0.0025', '0.005', '0.01', '0.025', '0.05', '0.1', '0.5', '2']
const breaker = (upstream: string) => `tollgate_upstream_breaker_state{namespace="gate",upstream="${upstream}"}`
const attempts = (upstream: string) => `tollgate_upstream_requests_total{namespace="gate",upstream="${upstream}",outcome="failed"}`
const deliveries = (outcome: string) => `tollgate_webhook_deliveries_total{namespace="gate",outcome="${outcome}",attempt="1"}`
const swept = (reason: string) => `tollgate_tasks_swept_total{namespace="gate",reason="${reason}"}`
const leader = (instance: string) => `leader_election_master_status{namespace="gate",instance="${instance}",name="tollgate-controller"}`
const build = (instance: string) => `tollgate_build_info{namespace="gate",instance="${instance}",version="1"}`
const ofRole = (role: string) => `tollgate_build_info{namespace="gate",instance="${role}",role="${role}",version="1"}`
const EVERY_ROLE = Object.fromEntries(['gateway', 'worker', 'dispatcher'].map((role) => [ofRole(role), '1x90']))
const STARTING = 'tollgate_check_ok{namespace="gate",instance="worker",check="program"}'
const refusals = (window: string) => `tollgate_window_refusals_total{namespace="gate",window="${window}"}`
const declared = (ready: string, reason: string) => `tollgate_declared_resources{namespace="gate",kind="apikey",ready="${ready}",reason="${reason}"}`
const used = (share: string) => `tollgate_declared_plans_used{namespace="gate",limit="allowance",share="${share}"}`
const oldest = (state: string) => `tollgate_task_oldest_seconds{namespace="gate",state="${state}",kind="image"}`

export const ALERT_CASES: AlertCase[] = [
  // Two in a hundred requests fail; one in a thousand is what was promised.
  { alert: 'TollgateErrorBudgetBurn', labels: { severity: 'critical' }, at: '70m', fires: { [coding('200')]: '0+98x400', [coding('503')]: '0+2x400' }, quiet: { [coding('200')]: '0+999x400', [coding('503')]: '0+1x400' } },
  { alert: 'TollgateErrorBudgetBurn', labels: { severity: 'warning' }, at: '390m', fires: { [coding('200')]: '0+99x400', [coding('503')]: '0+1x400' }, quiet: { [coding('200')]: '0+999x400', [coding('429')]: '0+100x400' } },
  { alert: 'TollgateOverheadHigh', labels: { severity: 'warning', wire: 'chat' }, at: '25m', fires: slow('tollgate_gateway_overhead_seconds', 'wire="chat",', '2', OVERHEAD), quiet: slow('tollgate_gateway_overhead_seconds', 'wire="chat",', '0.05', OVERHEAD) },
  // Half open in between: a trial that failed. The backup got no requests since its last failure.
  { alert: 'TollgateUpstreamDown', labels: { severity: 'critical', upstream: 'main' }, at: '10m', fires: { [breaker('main')]: '0 2 2 1 2 2 1 2 2 2 2' }, quiet: { [breaker('main')]: '0 0 0 2 2 1 0 0 0 2 0', [breaker('backup')]: '0 2 1x20' } },
  // It refuses one request a minute, and is open for ten seconds after each.
  { alert: 'TollgateUpstreamDown', labels: { severity: 'critical', upstream: 'main' }, at: '12m', fires: { [breaker('main')]: '0 2 1x20', [attempts('main')]: '0 5+1x20' }, quiet: { [breaker('main')]: '0 2 1x20', [attempts('main')]: '0 5x20', [breaker('flaky')]: '0x20', [attempts('flaky')]: '0+1x20' } },
  { alert: 'TollgateWindowRefusalsHigh', labels: { severity: 'warning' }, at: '50m', fires: { [coding('200')]: '0+80x100', [coding('429')]: '0+20x100', [refusals('weekly')]: '0+20x100' }, quiet: { [coding('200')]: '0+99x100', [coding('429')]: '0+21x100', [refusals('session')]: '0+1x100', [refusals('key')]: '0+20x100' } },
  { alert: 'TollgateTasksQueuedTooLong', labels: { severity: 'warning', kind: 'image' }, at: '40m', fires: { [oldest('queued')]: '0+60x60' }, quiet: { [oldest('queued')]: '300x60', [oldest('processing')]: '0+60x60' } },
  { alert: 'TollgateTasksUnsettled', labels: { severity: 'critical', state: 'settling', kind: 'image' }, at: '20m', fires: { [oldest('settling')]: '0+60x60' }, quiet: { [oldest('settling')]: '2x60', [oldest('processing')]: '0+60x60' } },
  { alert: 'TollgateTasksRecovered', labels: { severity: 'warning', reason: 'lost_lease' }, at: '90m', fires: { [swept('lost_lease')]: '0+1x100' }, quiet: { [swept('lost_lease')]: '0x30 0+1x5 5x60', [swept('unserved')]: '0+1x100' } },
  { alert: 'TollgateVerifyFailed', labels: { severity: 'critical', job_name: 'tollgate-verify-29401577' }, at: '8m', fires: { 'kube_job_status_failed{namespace="gate",job_name="tollgate-verify-29401577"}': '1x10', 'tollgate_check_ok{namespace="gate",check="store"}': '1x1 _x9' }, quiet: { 'kube_job_status_failed{namespace="gate",job_name="tollgate-verify-29401577"}': '0x10', 'kube_job_status_failed{namespace="gate",job_name="backup-1"}': '1x10', 'kube_job_status_failed{namespace="shop",job_name="shop-verify-29401577"}': '1x10', 'tollgate_check_ok{namespace="gate",check="store"}': '1x10' } },
  { alert: 'TollgateWebhooksLate', labels: { severity: 'warning' }, at: '25m', fires: slow('tollgate_webhook_lag_seconds', '', '300', LAG), quiet: slow('tollgate_webhook_lag_seconds', '', '1', LAG) },
  // One receiver of a hundred webhooks a minute is down in the quiet case.
  { alert: 'TollgateReceiversFailing', labels: { severity: 'warning' }, at: '35m', fires: { [deliveries('failed')]: '0+8x60', [deliveries('delivered')]: '0+2x60' }, quiet: { [deliveries('failed')]: '0+10x60', [deliveries('delivered')]: '0+90x60' } },
  { alert: 'TollgateSealingKeyMissing', labels: { severity: 'critical' }, at: '10m', fires: { [deliveries('unsigned')]: '0+1x20' }, quiet: { [deliveries('unsigned')]: '7x20', [deliveries('failed')]: '0+9x20' } },
  { alert: 'TollgateReconcileErrors', labels: { severity: 'warning', controller: 'apikey' }, at: '35m', fires: { 'controller_runtime_reconcile_errors_total{namespace="gate",controller="apikey"}': '0+1x60' }, quiet: { 'controller_runtime_reconcile_errors_total{namespace="gate",controller="apikey"}': '0x20 0+1x3 3x60' } },
  { alert: 'TollgateWatchStale', labels: { severity: 'warning' }, at: '20m', fires: { 'tollgate_watch_last_event_age_seconds{namespace="gate"}': '0+60x30' }, quiet: { 'tollgate_watch_last_event_age_seconds{namespace="gate"}': '60x30' } },
  { alert: 'TollgateNoLeader', labels: { severity: 'critical' }, at: '10m', fires: { [leader('a')]: '1x3 0x10', [leader('b')]: '0x20', [build('a')]: '1x20', [build('b')]: '1x20' }, quiet: { [leader('a')]: '1x3 0x10', [leader('b')]: '0x3 1x17', [build('a')]: '1x20', [build('b')]: '1x20', 'leader_election_master_status{namespace="others",instance="c",name="others"}': '0x20' } },
  // All controllers are gone.
  { alert: 'TollgateNoLeader', labels: { severity: 'critical' }, at: '45m', fires: { [leader('a')]: '1x30 stale', [build('a')]: '1x30 stale' }, quiet: { 'leader_election_master_status{namespace="others",instance="c",name="others"}': '1x30 stale' } },
  { alert: 'TollgateResourcesNotReady', labels: { severity: 'warning', kind: 'apikey', reason: 'SecretConflict' }, at: '30m', fires: { [declared('False', 'SecretConflict')]: '2x40' }, quiet: { [declared('False', 'PlanSuspended')]: '2x40', [declared('True', 'Issued')]: '9x40', [declared('False', 'StoreUnavailable')]: '0x20 1x5 0x15' } },
  { alert: 'TollgatePlansEnding', labels: { severity: 'info', kind: 'plan' }, at: '70m', fires: { 'tollgate_declared_resources_ending{namespace="gate",kind="plan"}': '1x90' }, quiet: { 'tollgate_declared_resources_ending{namespace="gate",kind="plan"}': '0x90' } },
  { alert: 'TollgatePlansUsedUp', labels: { severity: 'info', limit: 'allowance' }, at: '30m', fires: { [used('1')]: '1x40' }, quiet: { [used('0.8')]: '3x40', [used('1')]: '0x40' } },
  // A role that is back within five minutes is not missing.
  ...(['gateway', 'worker', 'dispatcher'] as const).map((role, _nth, all): AlertCase => {
    const others = { [build('a')]: '1x30', ...Object.fromEntries(all.filter((one) => one !== role).map((one) => [ofRole(one), '1x30'])) }
    return { alert: 'TollgateRoleMissing', labels: { severity: 'critical', role }, at: '20m', fires: { ...others, [ofRole(role)]: '1x10 stale' }, quiet: { ...others, [ofRole(role)]: '1x10 stale _x2 1x20' } }
  }),
  // The only worker waits at its start, for an hour and more.
  { alert: 'TollgateRoleMissing', labels: { severity: 'critical', role: 'worker' }, at: '80m', fires: { ...EVERY_ROLE, [STARTING]: '_x9 0x80' }, quiet: { ...EVERY_ROLE, [STARTING]: '_x9 0x65 stale' } },
  { alert: 'TollgateStoreDown', labels: { severity: 'critical' }, at: '5m', fires: { 'tollgate_check_ok{namespace="gate",check="store"}': '1 1 0x10' }, quiet: { 'tollgate_check_ok{namespace="gate",check="store"}': '1 1 1 1 0 1 1', 'tollgate_check_ok{namespace="gate",check="files"}': '0x10' } },
  { alert: 'TollgateStoreSlow', labels: { severity: 'warning' }, at: '25m', fires: slow('tollgate_store_duration_seconds', 'verb="change",outcome="answered",', '2', STORE), quiet: slow('tollgate_store_duration_seconds', 'verb="change",outcome="answered",', '0.02', STORE) },
  { alert: 'TollgateBrokerDown', labels: { severity: 'warning' }, at: '10m', fires: { 'tollgate_check_ok{namespace="gate",check="broker"}': '1 0x20' }, quiet: { 'tollgate_check_ok{namespace="gate",check="broker"}': '1 0 0 1 0 0 1 1 1 1 1' } },
  { alert: 'TollgateClockSkew', labels: { severity: 'critical' }, at: '5m', fires: { 'tollgate_clock_skew_seconds{namespace="gate"}': '-3x10' }, quiet: { 'tollgate_clock_skew_seconds{namespace="gate"}': '-0.4x10' } },
]
