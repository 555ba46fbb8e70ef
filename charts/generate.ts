/**
 * Generates the parts of the chart that come from the rest of the tree (`node charts/generate.ts`): the CRDs of crds/ with the operations of
 * src/domain/operations, these operations and the settings of src/config/config.ts in values.schema.json and the templates, the Grafana dashboards, and the table of values in docs/chart-values.md. `test/chart` compares the files with it.
 */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { parse } from 'yaml'
import { ProxyRoutesFile } from '../plugins/proxy/routes-file.ts'
import { EnginesFile } from '../src/backends/engines/engines-file.ts'
import { SETTINGS } from '../src/config/config.ts'
import { KINDS } from '../src/domain/media-generations.ts'
import { OPERATIONS } from '../src/domain/media-operations.ts'
import { BOARDS } from './dashboard-panels.ts'
import { dashboardOf } from './dashboards.ts'
import { UpstreamsFile } from '../src/upstream/upstreams-file.ts'

const ROOT = join(import.meta.dirname, '..')
export const CHART = join(import.meta.dirname, 'tollgate')
const read = (...path: string[]) => readFileSync(join(...path), 'utf8')

type Schema = { description?: string; definitions?: object; properties?: Record<string, Schema>; items?: Schema; [keyword: string]: unknown }

/** Settings that the chart sets itself, or that only the embedded mode has. */
const NOT_GIVEN = `ROLE HOST PORT OPS_HOST OPS_PORT PUBLIC_URL DATA_DIR STORE_URL RESOURCES_URL SEALING_KEY_FILE DERIVED_KEYS_FILE UPSTREAMS PLAN_LIMITS
  BROKER_URL FILES_URL ENGINES DASHBOARD DASHBOARD_KEY_MANAGEMENT OIDC_ISSUER OIDC_CLIENT_ID OIDC_CLIENT_SECRET OIDC_TENANT_CLAIM OIDC_SCOPES PROXY_ROUTES WORKER_SLOTS WORKER_KINDS DRAIN_DELAY_SECONDS SHUTDOWN_SECONDS`.split(/\s+/)

const ALL_KINDS = [...KINDS, ...OPERATIONS]

/** Every generated file by its path from the root. */
export function generated(): Record<string, string> {
  const crds = readdirSync(join(ROOT, 'crds')).flatMap((file) => {
    const text = read(ROOT, 'crds', file).replace(/(description: Operation on existing media\.\n.*\n *enum: ).*/, `$1[${OPERATIONS.join(', ')}]`)
    return [[`crds/${file}`, text], [`charts/tollgate/files/crds/${file}`, text]]
  })
  const pools = 'charts/tollgate/templates/_worker-pools.tpl'
  const checks = 'charts/tollgate/templates/_value-checks.tpl'
  const schema = withSettings(withKinds(JSON.parse(read(CHART, 'values.schema.json'))))
  const page = read(ROOT, 'docs/chart-values.md')
  const [head = '', rest = ''] = page.split('<!-- generated: values -->')
  const tail = rest.slice(rest.indexOf('<!-- end -->'))
  return {
    ...Object.fromEntries(crds),
    ...Object.fromEntries(Object.entries(BOARDS).map(([name, board]) => [`charts/tollgate/files/dashboards/${name}.json`, `${JSON.stringify(dashboardOf(board), null, 1)}\n`])),
    [checks]: read(ROOT, checks).replace(/(define "tollgate\.settings" -}}\n).*/, `$1[${Object.keys(SETTINGS).join(', ')}]`),
    [pools]: read(ROOT, pools).replace(/(define "tollgate\.kinds" -}}\n).*/, `$1[${ALL_KINDS.join(', ')}]`),
    'charts/tollgate/values.schema.json': `${JSON.stringify(schema, null, 2)}\n`,
    'docs/chart-values.md': `${head}<!-- generated: values -->\n${table(schema)}\n${tail}`,
  }
}

/** The schema with the kinds and operations that a worker may run. */
function withKinds(schema: Schema): Schema {
  return JSON.parse(JSON.stringify(schema), (name, value) => (name === 'kinds' ? { ...value, items: { enum: ALL_KINDS } } : value))
}

/** The schema with `settings` as src/config/config.ts has them, and the files. */
function withSettings(schema: Schema): Schema {
  const given = Object.entries(SETTINGS).filter(([name]) => !NOT_GIVEN.includes(name))
  const properties = Object.fromEntries(
    given.map(([name, { meaning, parse: { mayBe, schema }, default: fallback }]) => [
      name,
      { ...(schema ?? { type: ['string', 'number', 'boolean'] }), description: `${meaning} The value may be ${mayBe}${fallback === '' ? '' : `; ${fallback} when left out`}.` },
    ]),
  )
  const settings = { type: 'object', description: 'Settings of every role, as in docs/configuration.md, except those that follow from other values.', additionalProperties: false, properties }
  const files = { upstreamsFile: withoutDefaults(UpstreamsFile), enginesFile: withoutDefaults(EnginesFile), proxyRoutesFile: withoutDefaults(ProxyRoutesFile) }
  const definitions = { ...schema.definitions, ...files }
  return { ...schema, definitions, properties: { ...schema.properties, settings } }
}

/** A schema for what somebody writes: members with a default are not required. */
function withoutDefaults(schema: object): unknown {
  return JSON.parse(JSON.stringify(schema), (_key, value: Schema | null) => {
    if (!Array.isArray(value?.['required'])) return value
    return { ...value, required: value['required'].filter((name) => value.properties?.[name]?.['default'] === undefined) }
  })
}

/** A row for each value; a value that is a Kubernetes object is one row. */
function table(schema: Schema): string {
  const defaults = parse(read(CHART, 'values.yaml'))
  const rows = rowsOf(schema, '', defaults)
  return ['| value | default | |', '| --- | --- | --- |', ...rows.map((cells) => `| ${cells.map((cell) => cell.replaceAll('|', '\\|')).join(' | ')} |`)].join('\n')
}

function rowsOf({ properties = {}, items }: Schema, path: string, value: unknown): string[][] {
  const members = Object.entries(properties).flatMap(([name, schema]) => {
    const at = path === '' ? name : `${path}.${name}`
    const held = (value as Record<string, unknown> | undefined)?.[name]
    return [rowOf(at, schema, held), ...rowsOf(schema, at, held)]
  })
  if (!items?.properties) return members
  // A pool has the values of `worker`.
  const own = path === 'workerPools' ? { properties: { name: items.properties['name'] ?? {} } } : items
  return rowsOf(own, `${path}[]`, undefined)
}

function rowOf(path: string, { description = '', properties }: Schema, value: unknown): string[] {
  const shown = value === undefined || (properties && Object.keys(properties).length > 0) ? '' : value === '' ? 'empty' : `\`${JSON.stringify(value)}\``
  return [`\`${path}\``, shown, description]
}

if (import.meta.main) {
  for (const [path, text] of Object.entries(generated())) writeFileSync(join(ROOT, path), text)
}
