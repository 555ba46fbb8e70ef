/** The panels of the Grafana dashboards: what each shows, and its queries. `$rate` is the interval of a rate, `$of` the selector of the chosen namespaces. */

/** `legend` is a template of labels, such as `{{code}}`. */
export type Query = { expr: string; legend: string }
/** Units of Grafana: `s` seconds, `percentunit` a ratio, `reqps` and `ops` per second, `bytes`, `short` a number. */
export type Unit = 's' | 'percentunit' | 'reqps' | 'ops' | 'bytes' | 'short'
export type Panel = { title: string; description: string; unit: Unit; queries: Query[] }
export type Board = { uid: string; title: string; description: string; rows: { title: string; panels: Panel[] }[] }

const rate = (metric: string, labels = '') => `rate(${metric}{$of${labels === '' ? '' : `, ${labels}`}}[$rate])`
const perSecond = (metric: string, by: string, labels = ''): Query => ({ expr: `sum by (${by}) (${rate(metric, labels)})`, legend: by.split(', ').map((label) => `{{${label}}}`).join(' ') })
const quantile = (q: number, histogram: string, by: string[] = []): Query => ({
  expr: `histogram_quantile(${q}, sum by (${[...by, 'le'].join(', ')}) (${rate(`${histogram}_bucket`)}))`,
  legend: [...by.map((label) => `{{${label}}}`), `p${q * 100}`].join(' '),
})
const quantiles = (histogram: string, by: string[] = []): Query[] => [0.5, 0.95, 0.99].map((q) => quantile(q, histogram, by))
const most = (metric: string, by: string): Query => ({ expr: `max by (${by}) (${metric}{$of})`, legend: by.split(', ').map((label) => `{{${label}}}`).join(' ') })
const panel = (title: string, unit: Unit, description: string, ...queries: Query[]): Panel => ({ title, description, unit, queries })

const PROCESSES = {
  title: 'Processes',
  panels: [
    panel('Memory', 'bytes', 'Resident memory of each process.', most('process_resident_memory_bytes', 'instance')),
    panel('CPU', 'short', 'Cores in use.', { expr: `sum by (instance) (${rate('process_cpu_seconds_total')})`, legend: '{{instance}}' }),
    panel('Event-loop lag, p99', 's', 'Above 0.1 s a process is short of CPU.', most('nodejs_eventloop_lag_p99_seconds', 'instance')),
    panel('Readiness checks', 'short', '1 passed, 0 failed: the worst process of each check.', { expr: 'min by (check) (tollgate_check_ok{$of})', legend: '{{check}}' }),
    panel('Clock skew', 's', "The store's clock minus that of each process. Beyond 5 s a process writes nothing.", { expr: 'tollgate_clock_skew_seconds{$of}', legend: '{{instance}}' }),
    panel('Dropped log lines', 'ops', 'Standard output was not read.', { expr: `sum by (instance) (${rate('tollgate_log_lines_dropped_total')})`, legend: '{{instance}}' }),
    panel('Versions', 'short', 'Processes by version.', { expr: 'count by (version) (tollgate_build_info{$of})', legend: '{{version}}' }),
  ],
}

const GATEWAY: Board = {
  uid: 'tollgate-gateway',
  title: 'Tollgate / Gateway',
  description: 'Requests, coding, upstreams and the store, as the gateways see them.',
  rows: [
    {
      title: 'Requests',
      panels: [
        panel('Requests', 'reqps', 'Requests answered, by product and status.', perSecond('tollgate_http_requests_total', 'product, code')),
        panel('Errors', 'percentunit', 'Share of 5xx. The error budget is 0.1 %.', {
          expr: `(sum by (product) (${rate('tollgate_http_requests_total', 'product!="none", code=~"5.."')}) or 0 * sum by (product) (${rate('tollgate_http_requests_total', 'product!="none"')})) / sum by (product) (${rate('tollgate_http_requests_total', 'product!="none"')})`,
          legend: '{{product}}',
        }),
        panel('Duration', 's', 'From the first byte of a request to the end of its answer.', ...quantiles('tollgate_http_request_duration_seconds', ['product'])),
        panel('Memory of request bodies', 'bytes', 'Of at most BODY_MEMORY_MIB: the gateway that holds most.', { expr: 'max(tollgate_body_memory_bytes{$of})', legend: 'bytes' }),
      ],
    },
    {
      title: 'Coding',
      panels: [
        panel('Tokens', 'short', 'Settled tokens per second.', perSecond('tollgate_coding_tokens_total', 'kind')),
        panel('Time to first token', 's', 'Streams: from the request to the first byte of its answer.', ...quantiles('tollgate_coding_time_to_first_token_seconds')),
        panel('Time between tokens', 's', 'Mean of each stream.', ...quantiles('tollgate_coding_inter_token_seconds')),
        panel('Overhead of the gateway', 's', 'From the arrival of a request to its upstream, including the wait for concurrency of its plan.', ...quantiles('tollgate_gateway_overhead_seconds')),
        panel('Refusals by full windows', 'reqps', 'Requests that a full token window refused.', perSecond('tollgate_window_refusals_total', 'window')),
        panel('Requests in flight', 'short', 'Admitted and not settled.', { expr: 'sum(tollgate_reservations_open{$of})', legend: 'requests' }),
        panel('Admitted again', 'ops', 'Sent by a lease before the change of a plan was seen.', perSecond('tollgate_readmissions_total', 'outcome')),
        panel('Reserved tokens', 'short', 'Tokens that the requests in flight reserve.', { expr: 'sum(tollgate_reserved_tokens{$of})', legend: 'tokens' }),
        panel('Estimated over reported tokens', 'percentunit', 'Reservations, and charges without a report, are off by this.', quantile(0.5, 'tollgate_coding_estimate_ratio', ['kind'])),
      ],
    },
    {
      title: 'Upstreams',
      panels: [
        panel('Attempts', 'reqps', 'Calls of model servers.', perSecond('tollgate_upstream_requests_total', 'upstream, outcome')),
        panel('Time to the first byte, p95', 's', 'Of an attempt, or to its failure.', quantile(0.95, 'tollgate_upstream_duration_seconds', ['upstream', 'outcome'])),
        panel('Retries', 'reqps', 'Further attempts at the same upstream.', perSecond('tollgate_upstream_retries_total', 'upstream')),
        panel('Circuit breakers', 'short', '0 closed, 1 half open, 2 open: the worst gateway.', most('tollgate_upstream_breaker_state', 'upstream')),
      ],
    },
    {
      title: 'Store and files',
      panels: [
        panel('Store: calls', 'ops', 'By outcome.', perSecond('tollgate_store_duration_seconds_count', 'outcome')),
        panel('Store: duration, p99', 's', 'By verb.', quantile(0.99, 'tollgate_store_duration_seconds', ['verb'])),
        panel('Store: conflicts', 'ops', 'Retried changes of a record.', perSecond('tollgate_store_conflicts_total', 'reason')),
        panel('Files: duration, p99', 's', 'By verb.', quantile(0.99, 'tollgate_files_duration_seconds', ['verb'])),
      ],
    },
    PROCESSES,
  ],
}

const TASKS: Board = {
  uid: 'tollgate-tasks',
  title: 'Tollgate / Tasks and controller',
  description: 'Media tasks, money, webhooks, the broker, and the controller of Plans and ApiKeys.',
  rows: [
    {
      title: 'Tasks',
      panels: [
        panel('Open tasks', 'short', 'In the store, by state.', { expr: 'sum by (state, kind) (max by (namespace, state, kind) (tollgate_tasks{$of}))', legend: '{{state}} {{kind}}' }),
        panel('Age of the oldest open task', 's', 'Since its creation; of one that settles, since its outcome is known.', most('tollgate_task_oldest_seconds', 'state, kind')),
        panel('Wait in the queue, p95', 's', 'From the creation of a task to its first run.', quantile(0.95, 'tollgate_task_queue_seconds', ['kind'])),
        panel('Runs', 'ops', 'By outcome.', perSecond('tollgate_task_run_seconds_count', 'engine, outcome')),
        panel('Duration of a run, p95', 's', 'By kind and engine.', quantile(0.95, 'tollgate_task_run_seconds', ['kind', 'engine'])),
        panel('Claims', 'ops', 'By message and by query.', perSecond('tollgate_task_claims_total', 'by, outcome')),
        panel('Slots', 'short', 'Tasks that all workers together run at once, and those that run.', { expr: 'sum(tollgate_task_slots{$of})', legend: 'slots' }, { expr: 'sum(tollgate_task_slots_busy{$of})', legend: 'running' }),
        panel('Money', 'short', 'Micro-units per second: held at creation and by extensions, captured or voided at the end.', perSecond('tollgate_money_micro_total', 'move')),
        panel('Recovered by sweeps', 'ops', 'Each is what a crash left unfinished.', perSecond('tollgate_tasks_swept_total', 'reason'), perSecond('tollgate_reservations_swept_total', 'reason')),
        panel('Messages of the broker', 'ops', 'By event.', perSecond('tollgate_broker_messages_total', 'event'), { expr: `sum(${rate('tollgate_task_messages_repeated_total')})`, legend: 'repeated' }),
        panel('Sends to the broker, p99', 's', 'By outcome.', quantile(0.99, 'tollgate_broker_duration_seconds', ['outcome'])),
        panel('Usage records not published', 's', 'Age of the oldest that is still to be published. It rises while the broker is unavailable.', most('tollgate_usage_unpublished_age_seconds', 'namespace')),
        panel('Restarted consumers of the broker', 'ops', 'Each ended by a failure.', perSecond('tollgate_broker_restarts_total', 'kind')),
      ],
    },
    {
      title: 'Webhooks',
      panels: [
        panel('Attempts', 'ops', 'By outcome.', perSecond('tollgate_webhook_deliveries_total', 'outcome')),
        panel('Lag', 's', 'From the due time of an attempt to its start.', ...quantiles('tollgate_webhook_lag_seconds')),
        panel('Refused addresses', 'ops', 'By the egress guard.', perSecond('tollgate_egress_refused_total', 'reason')),
      ],
    },
    {
      title: 'Controller',
      panels: [
        panel('Reconciliations', 'ops', 'By result.', perSecond('controller_runtime_reconcile_total', 'controller, result')),
        panel('Duration of a reconciliation, p99', 's', '', quantile(0.99, 'controller_runtime_reconcile_time_seconds', ['controller'])),
        panel('Work queues', 'short', 'Names that wait.', { expr: 'sum by (name) (workqueue_depth{$of})', legend: '{{name}}' }),
        panel('Wait in the work queue, p99', 's', '', quantile(0.99, 'workqueue_queue_duration_seconds', ['name'])),
        panel('Oldest work in progress', 's', 'A steady rise means that it is stuck.', most('workqueue_longest_running_processor_seconds', 'name')),
        panel('A key is ready', 's', 'From its declaration until it is usable.', ...quantiles('tollgate_key_ready_seconds')),
        panel('Plans and ApiKeys', 'short', 'Declared ones, by readiness and its reason.', { expr: 'sum by (kind, ready, reason) (tollgate_declared_resources{$of})', legend: '{{kind}} {{ready}} {{reason}}' }),
        panel('Refused manifests', 'short', 'Documents and files of a folder.', most('tollgate_manifests_refused', 'instance')),
        panel('Ending within 7 days', 'short', 'Active Plans and ApiKeys.', { expr: 'sum by (kind) (tollgate_declared_resources_ending{$of})', legend: '{{kind}}' }),
        panel('Plans used', 'short', 'Plans that have used at least 0.8 or all of their allowance or week.', { expr: 'sum by (limit, share) (tollgate_declared_plans_used{$of})', legend: '{{limit}} {{share}}' }),
        panel('Leader', 'short', '1 while the process leads. The sum is 1.', most('leader_election_master_status', 'instance')),
        panel('Age of the last watch event', 's', 'Bookmarks included.', most('tollgate_watch_last_event_age_seconds', 'instance')),
        panel('Requests to the API server', 'reqps', 'By status.', perSecond('rest_client_requests_total', 'code, method')),
      ],
    },
    PROCESSES,
  ],
}

/** By the name of their files. */
export const BOARDS: Record<string, Board> = { gateway: GATEWAY, tasks: TASKS }
