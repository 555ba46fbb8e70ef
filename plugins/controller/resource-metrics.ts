/** What Plans and ApiKeys are as the controller last saw them: ready or why not, ending soon, nearly used up. */
import type { Registry } from 'prom-client'
import type { ApiKeyStatus, Kind, PlanSpec, PlanStatus, Ref, Resources } from '../../src/backends/resources/resources.ts'
import { metersOf } from '../../src/telemetry/metrics.ts'

/** Resources that end within this time count as ending. */
const ENDING_MS = 7 * 24 * 3_600_000
const SHARES = [0.8, 1]

type Seen = { ref: Ref; status: PlanStatus | ApiKeyStatus }
type Labels = Record<string, string>

export type ResourceMetricsOptions = {
  resources: Resources
  clock: () => number
  /** With the label `tenant` (`METRICS_TENANT`). */
  byTenant: boolean
}

/**
 * Registers the gauges, which are computed at each scrape, by the process that leads alone. Returns `resources` with statuses noted as they are
 * written; a resource counts from its first pass on.
 */
export function resourceMetrics(registry: Registry, { resources, clock, byTenant }: ResourceMetricsOptions): Resources {
  const { gaugedBy } = metersOf(registry)
  const statuses = new Map<string, Seen>()
  const tenantLabel = byTenant ? ['tenant'] : []
  const ofTenant = ({ namespace }: Ref): Labels => (byTenant ? { tenant: namespace } : {})

  /** `count` calls back with the labels of each series that a resource counts in. */
  function gauge(
    name: string,
    help: string,
    labelNames: string[],
    count: (seen: Seen, add: (labels: Labels, by?: number) => void) => void,
  ): void {
    gaugedBy(name, help, [...labelNames, ...tenantLabel], (series) => {
      series.reset()
      if (!resources.isLeading()) return
      for (const seen of statuses.values()) count(seen, (labels, by = 1) => series.inc({ ...labels, ...ofTenant(seen.ref) }, by))
    })
  }

  gaugedBy('tollgate_manifests_refused', 'Documents and files of the folder of manifests that are refused at present.', [], (gauge) =>
    gauge.set(resources.health().refused ?? 0),
  )
  gauge(
    'tollgate_declared_resources',
    'Plans and ApiKeys by their condition Ready.',
    ['kind', 'ready', 'reason'],
    ({ ref, status }, add) => {
      const ready = status.conditions.find(({ type }) => type === 'Ready')
      if (ready) add({ kind: kindOf(ref.kind), ready: ready.status, reason: ready.reason })
    },
  )
  gauge('tollgate_declared_resources_ending', 'Active Plans and ApiKeys that expire within 7 days.', ['kind'], ({ ref }, add) => {
    const { state, expirationTime } = resources.get(ref)?.spec ?? {}
    const restMs = Date.parse(expirationTime ?? '') - clock()
    // Zero where none ends, so that a panel has a line.
    add({ kind: kindOf(ref.kind) }, state === 'Active' && restMs > 0 && restMs <= ENDING_MS ? 1 : 0)
  })
  gauge(
    'tollgate_declared_plans_used',
    'Plans that have used at least this share of their allowance or their week.',
    ['limit', 'share'],
    (seen, add) => {
      const resource = resources.get(seen.ref)
      if (resource?.kind !== 'Plan') return
      for (const { limit, used } of sharesOf(resource.spec, seen.status as PlanStatus)) {
        // Zero where no plan is there yet, so that the first one is a rise.
        for (const share of SHARES) add({ limit, share: String(share) }, used >= share ? 1 : 0)
      }
    },
  )

  return {
    ...resources,
    watch: (changed) =>
      resources.watch((ref) => {
        if (!resources.get(ref)) statuses.delete(idOf(ref))
        changed(ref)
      }),
    async setStatus(ref, status) {
      const isPresent = await resources.setStatus(ref, status)
      // It may be deleted by now.
      if (isPresent && resources.get(ref)) statuses.set(idOf(ref), { ref, status })
      return isPresent
    },
  }
}

function idOf({ kind, namespace, name }: Ref): string {
  return `${kind} ${namespace}/${name}`
}

/** As controllers and queues are called in other metrics. */
function kindOf(kind: Kind): string {
  return kind.toLowerCase()
}

function sharesOf({ media, coding }: PlanSpec, { usage }: PlanStatus): { limit: string; used: number }[] {
  const allowance = Number(media?.allowance ?? 0)
  const tokens = coding?.weeklyWindow.tokens ?? 0
  return [
    ...(allowance > 0 ? [{ limit: 'allowance', used: Number(usage?.burned ?? 0) / allowance }] : []),
    ...(tokens > 0 ? [{ limit: 'week', used: (usage?.weeklyTokens ?? 0) / tokens }] : []),
  ]
}
