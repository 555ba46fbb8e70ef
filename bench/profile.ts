/** CPU profile of Tollgate under load: V8's sampling profiler over one burst of each kind of request, and one of media tasks. */
import { readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { WORKLOADS } from './coding-workloads.ts'
import { asFastAsPossible } from './load.ts'
import type { Choice, Stage } from './stage.ts'
import type { Table } from './table.ts'
import { complete, TASKS, WARM_TASKS } from './tasks.ts'

const CONNECTIONS = 32
const WARM_MS = 3000
const SHOWN = 30
const TENANTS = 20
const FLAGS = ['--cpu-prof', '--cpu-prof-dir=profiles', '--cpu-prof-interval=150']

type Node = { id: number; callFrame: { functionName: string; url: string; lineNumber: number }; children?: number[] }
type Profile = { nodes: Node[]; startTime: number; samples: number[]; timeDeltas: number[] }

/** Samples of one burst: how often each node was at the top of the stack. */
type Samples = { nodes: Node[]; samples: Map<number, number>; requests: number }

/** Two tables per kind of request: by our functions, including the library and Node functions that they call, and by the function at the top of the stack. */
export async function profile(stage: Stage, { seconds, workloads }: Choice): Promise<Table[]> {
  const model = await stage.model()
  const tables: Table[] = []
  for (const { name, upstream, bytes, expected } of WORKLOADS.filter((workload) => workload.name.includes(workloads))) {
    const home = `profile-${tables.length}`
    const tollgate = await stage.tollgate(home, model, { flags: FLAGS, wire: upstream })
    const target = { url: tollgate.url, bytes: bytes(await stage.key(home)) }
    await asFastAsPossible([target], expected, { connections: CONNECTIONS, ms: WARM_MS })
    const fromUs = nowUs()
    const { count } = await asFastAsPossible([target], expected, { connections: CONNECTIONS, ms: seconds * 1000 })
    const untilUs = nowUs()
    await tollgate.stop()
    tables.push(...tablesOf(name, await seen(stage, home, { fromUs, untilUs, requests: count })))
  }
  await model.stop()
  return workloads === '' ? [...tables, ...(await profileTasks(stage))] : tables
}

/** The workload of `tasks` for twenty tenants; one process does all the work of a task. */
async function profileTasks(stage: Stage): Promise<Table[]> {
  const home = 'profile-tasks'
  const studio = await stage.studio(home, TENANTS, '32', FLAGS)
  const keys = await Promise.all(Array.from({ length: TENANTS }, (_, n) => stage.key(home, n)))
  await complete(studio.url, keys, WARM_TASKS, 0)
  const fromUs = nowUs()
  await complete(studio.url, keys, TASKS, WARM_TASKS)
  const untilUs = nowUs()
  await studio.stop()
  return tablesOf('media tasks', await seen(stage, home, { fromUs, untilUs, requests: TASKS }))
}

async function seen(stage: Stage, home: string, { fromUs, untilUs, requests }: { fromUs: number; untilUs: number; requests: number }): Promise<Samples> {
  const folder = join(stage.folder, home, 'profiles')
  const [file = ''] = await readdir(folder)
  const recorded = JSON.parse(await readFile(join(folder, file), 'utf8')) as Profile
  return { nodes: recorded.nodes, samples: busySamples(recorded, fromUs, untilUs), requests }
}

/** The clock of V8's profile timestamps. */
function nowUs(): number {
  return Number(process.hrtime.bigint() / 1000n)
}

/**
 * How often each node was at the top of the stack between two times, without idle samples. Samples are counted instead of summing their times, since a time includes
 * what the machine spent on other processes.
 */
function busySamples({ nodes, startTime, samples, timeDeltas }: Profile, fromUs: number, untilUs: number): Map<number, number> {
  const idle = new Set(nodes.filter(({ callFrame }) => callFrame.functionName === '(idle)').map(({ id }) => id))
  const counts = new Map<number, number>()
  let atUs = startTime
  for (const [n, id] of samples.entries()) {
    atUs += timeDeltas[n] ?? 0
    if (atUs >= fromUs && atUs <= untilUs && !idle.has(id)) counts.set(id, (counts.get(id) ?? 0) + 1)
  }
  return counts
}

const OURS = /^(src|plugins)\//

function tablesOf(name: string, { nodes, samples, requests }: Samples): Table[] {
  const byId = new Map(nodes.map((node) => [node.id, node]))
  const parents = new Map(nodes.flatMap(({ id, children = [] }) => children.map((child) => [child, id] as const)))
  const ownerOf = (id: number): string => {
    let library: string | null = null
    for (let at: number | undefined = id; at !== undefined; at = parents.get(at)) {
      const file = fileOf(byId.get(at))
      if (OURS.test(file)) return placeOf(byId.get(at))
      if (file !== '' && !file.startsWith('node:')) library = packageOf(file)
    }
    return library ?? (placeOf(byId.get(id)).startsWith('(') ? placeOf(byId.get(id)) : 'Node')
  }
  const total = [...samples.values()].reduce((sum, count) => sum + count, 0)
  const table = (title: string, groupOf: (id: number) => string, note?: string): Table => {
    const groups = new Map<string, number>()
    for (const [id, count] of samples) groups.set(groupOf(id), (groups.get(groupOf(id)) ?? 0) + count)
    const rows = [...groups].sort((a, b) => b[1] - a[1]).slice(0, SHOWN)
    return {
      title,
      head: ['', 'share'],
      rows: rows.map(([place, count]) => [`\`${place}\``, `${((count * 100) / total).toFixed(1)} %`]),
      ...(note ? { note } : {}),
    }
  }
  const note = `${total} samples over ${requests} requests or tasks.`
  return [
    table(`Profile, ${name}: by our functions, including the library and Node functions that they call`, ownerOf, note),
    table(`Profile, ${name}: by function at the top of the stack`, (id) => placeOf(byId.get(id))),
  ]
}

function fileOf(node: Node | undefined): string {
  return (node?.callFrame.url ?? '').replace(/^.*\/node_modules\//, '').replace(/^file:\/\/.*?\/(src|plugins|bin)\//, '$1/')
}

function placeOf(node: Node | undefined): string {
  const name = node?.callFrame.functionName || '(anonymous)'
  const file = fileOf(node)
  return file === '' ? name : `${name} ${file}:${(node?.callFrame.lineNumber ?? 0) + 1}`
}

function packageOf(file: string): string {
  return file.split('/').slice(0, file.startsWith('@') ? 2 : 1).join('/')
}
