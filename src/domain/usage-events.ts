/** Usage records as others get them: CloudEvents 1.0 (`docs/usage-records.md`), and the columns of CSV. Pure. */
import { formatMoney } from './money.ts'
import { planNameOf, tenantOf } from './plans.ts'
import { isCodingUsage, type UsageRecord } from './usage-records.ts'

/** Of each source an id is unique (CloudEvents 1.0, "id"): who has an event of this id has this one. */
const SOURCE = '/tollgate'

type Whose = { tenant: string; plan: string; key: string }
/** `estimated`: the upstream did not report the tokens; those of a gateway that died are 0, and only its reservation is charged. */
type CodingData = Whose & {
  request: string
  requests: 1
  input_tokens: number
  cached_input_tokens: number
  output_tokens: number
  charged_tokens: number
  estimated: boolean
}
/** `cost`: a decimal number of currency units. */
type MediaData = Whose & { task: string; tasks: 1; kind: string; cost: string }

export type UsageEvent = {
  specversion: '1.0'
  id: string
  source: string
  subject: string
  time: string
  datacontenttype: 'application/json'
  dataschema: string
} & ({ type: 'dev.tollgate.usage.coding.v1'; data: CodingData } | { type: 'dev.tollgate.usage.media.v1'; data: MediaData })

/** The event of a record. Its subject is the tenant. */
export function usageEvent(record: UsageRecord): UsageEvent {
  const { id, subscription, keyId: key, at } = record
  const whose: Whose = { tenant: tenantOf(subscription), plan: planNameOf(subscription), key }
  const about = {
    specversion: '1.0',
    id,
    source: SOURCE,
    subject: whose.tenant,
    time: new Date(at).toISOString(),
    datacontenttype: 'application/json',
  } as const
  if (!isCodingUsage(record)) {
    const data: MediaData = { ...whose, task: id, tasks: 1, kind: record.kind, cost: formatMoney(record.cost) }
    return { ...about, type: 'dev.tollgate.usage.media.v1', dataschema: 'https://tollgate.dev/schemas/usage-media.v1.json', data }
  }
  const { usage, charged, isEstimated } = record
  const data: CodingData = {
    ...whose,
    request: id,
    requests: 1,
    input_tokens: usage?.input ?? 0,
    cached_input_tokens: usage?.cachedInput ?? 0,
    output_tokens: usage?.output ?? 0,
    charged_tokens: charged,
    estimated: isEstimated,
  }
  return { ...about, type: 'dev.tollgate.usage.coding.v1', dataschema: 'https://tollgate.dev/schemas/usage-coding.v1.json', data }
}

export const USAGE_COLUMNS = [
  'id',
  'time',
  'tenant',
  'plan',
  'key',
  'kind',
  'input_tokens',
  'cached_input_tokens',
  'output_tokens',
  'charged_tokens',
  'estimated',
  'cost',
] as const

/** The cells of a record, by `USAGE_COLUMNS`: none has a comma, a quote or a line break. The kind of a coding request is `coding`. */
export function usageCells(record: UsageRecord): string[] {
  const { id, time, data } = usageEvent(record)
  const cells: Record<string, unknown> = { id, time, kind: 'coding', ...data }
  return USAGE_COLUMNS.map((column) => String(cells[column] ?? ''))
}
