/** Grafana's JSON of the dashboards in dashboard-panels.ts. */
import type { Board, Panel, Query } from './dashboard-panels.ts'

const WIDTH = 24
const [PANEL_WIDTH, PANEL_HEIGHT] = [8, 8]
/** Grafana 10 and newer read it. */
const SCHEMA_VERSION = 39

const DATASOURCE = { type: 'prometheus', uid: '${datasource}' }

/** The query with its placeholders as `interval` and the selector `of`. */
export function filled({ expr }: Query, interval: string, of: string): string {
  return expr.replaceAll('$rate', interval).replaceAll('$of', of)
}

/** The dashboard as Grafana imports it. */
export function dashboardOf({ uid, title, description, rows }: Board): object {
  return {
    uid,
    title,
    description,
    tags: ['tollgate'],
    schemaVersion: SCHEMA_VERSION,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-6h', to: 'now' },
    templating: { list: VARIABLES },
    panels: panelsOf(rows),
  }
}

const VARIABLES = [
  { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus' },
  {
    name: 'namespace',
    label: 'Namespace',
    type: 'query',
    datasource: DATASOURCE,
    query: 'label_values(tollgate_build_info, namespace)',
    includeAll: true,
    // Also series without the label, where Prometheus is not that of a cluster.
    allValue: '.*',
    multi: true,
    refresh: 2,
  },
]

/** Rows of three panels, each under its heading. */
function panelsOf(rows: Board['rows']): object[] {
  let y = 0
  let id = 0
  return rows.flatMap(({ title, panels }) => {
    const heading = { id: ++id, type: 'row', title, collapsed: false, gridPos: { x: 0, y: y++, w: WIDTH, h: 1 }, panels: [] }
    const drawn = panels.map((panel, n) => {
      const place = { x: (n * PANEL_WIDTH) % WIDTH, y: y + Math.floor((n * PANEL_WIDTH) / WIDTH) * PANEL_HEIGHT, w: PANEL_WIDTH, h: PANEL_HEIGHT }
      return { id: ++id, gridPos: place, ...panelOf(panel) }
    })
    y += Math.ceil((panels.length * PANEL_WIDTH) / WIDTH) * PANEL_HEIGHT
    return [heading, ...drawn]
  })
}

function panelOf({ title, description, unit, queries }: Panel): object {
  return {
    type: 'timeseries',
    title,
    ...(description === '' ? {} : { description }),
    datasource: DATASOURCE,
    fieldConfig: { defaults: { unit, custom: { fillOpacity: 10, showPoints: 'never' } }, overrides: [] },
    options: { legend: { displayMode: 'list', placement: 'bottom', showLegend: true }, tooltip: { mode: 'multi', sort: 'desc' } },
    targets: queries.map((query, n) => ({
      refId: String.fromCharCode('A'.charCodeAt(0) + n),
      datasource: DATASOURCE,
      expr: filled(query, '$__rate_interval', 'namespace=~"$namespace"'),
      legendFormat: query.legend,
      range: true,
    })),
  }
}
