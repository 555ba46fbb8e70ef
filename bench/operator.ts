/** Benchmark of the operator on a real API server: many keys from nothing to Ready, then changes, suspensions, a restart and failovers. */
import { client } from '../test/servers/client.ts'
import { KUBERNETES_NAMES, startKubernetes } from '../test/servers/kubernetes.ts'
import { MONGODB_NAMES, startMongodb } from '../test/servers/mongodb.ts'
import { openField, type Field } from './operator/field.ts'
import { changing, failing, issuing, restarting, suspending, type Figures } from './operator/measures.ts'
import { openSeparate, openEmbedded, openNaive, type Programs } from './operator/programs.ts'
import type { Choice, Stage } from './stage.ts'
import type { Table } from './table.ts'

const GOALS: [figure: RegExp, goal: string][] = [
  [/^all keys Ready/, '120 s for 10,000; 60 s'],
  [/^memory of the controller 3 s later/, '300 MB'],
  [/^a key is edited/, 'p99 100 ms'],
  [/^a key is declared/, 'p99 100 ms'],
  [/^a plan is suspended/, 'p99 1 s'],
  [/^restarted/, '10 s'],
  [/^writes/, '0'],
  [/SIGTERM/, '5 s'],
  [/SIGKILL/, '20 s'],
]

type Side = { name: string; open: (kubeconfig: string) => Promise<Programs>; isTollgate: boolean; hasStandby: boolean }

/** Each side has its own API server and etcd, on the same cores. Yields nothing where they are not installed, and prints a line about it. */
export async function* operator(stage: Stage, choice: Choice): AsyncGenerator<Table> {
  const missing = KUBERNETES_NAMES.filter((name) => client(name) === null)
  if (missing.length > 0) {
    process.stdout.write(`The operator was skipped: its servers are not installed (\`npm run servers ${missing.join(' ')}\`).\n\n`)
    return
  }
  const model = await stage.model()
  const mongodb = MONGODB_NAMES.every((name) => client(name) !== null) ? await startMongodb() : null
  const sides: Side[] = [
    { name: 'client-node loop, status only', open: (kubeconfig) => openNaive(stage, kubeconfig), isTollgate: false, hasStandby: false },
    { name: 'Tollgate, one process, SQLite', open: (kubeconfig) => openEmbedded(stage, kubeconfig, model), isTollgate: true, hasStandby: false },
  ]
  if (mongodb) sides.push({ name: `Tollgate, one process per role, ${mongodb.version}`, open: (kubeconfig) => openSeparate(stage, kubeconfig, model, mongodb.url), isTollgate: true, hasStandby: true })
  try {
    const columns: Figures[] = []
    for (const side of sides) columns.push(await measure(side, choice))
    yield tableOf(choice, sides, columns)
  } finally {
    await mongodb?.stop()
    await model.stop()
  }
}

async function measure(side: Side, choice: Choice): Promise<Figures> {
  process.stderr.write(`  ${side.name} …\n`)
  const server = await startKubernetes()
  try {
    const field = await openField(server.kubeconfig, choice)
    const programs = await side.open(server.kubeconfig)
    try {
      return await scenario(side, field, programs, choice.keys)
    } finally {
      await programs.close()
      await field.close()
    }
  } finally {
    await server.stop()
  }
}

async function scenario({ isTollgate, hasStandby }: Side, field: Field, programs: Programs, keys: number): Promise<Figures> {
  const all: Figures = new Map()
  const add = (figures: Figures) => {
    for (const [name, value] of figures) {
      process.stderr.write(`    ${name}: ${value}\n`)
      all.set(name, value)
    }
  }
  let controller = await programs.controller()
  add(await issuing(field, controller, keys))
  add(await changing(field, keys))
  if (!isTollgate) return all
  add(await suspending(field, programs.gateway() ?? ''))
  const restarted = await restarting(field, programs, controller)
  controller = restarted.controller
  add(restarted.figures)
  if (hasStandby) add(await failing(field, programs, controller))
  return all
}

function tableOf({ keys, finalizerPolicy }: Choice, sides: Side[], columns: Figures[]): Table {
  const names = [...new Set(columns.flatMap((column) => [...column.keys()]))]
  return {
    title: `The operator with ${keys.toLocaleString('en')} keys${finalizerPolicy ? ', with the finalizer policy' : ''}`,
    head: ['', ...sides.map(({ name }) => name), 'goal'],
    rows: names.map((name) => [name, ...columns.map((column) => column.get(name) ?? ''), GOALS.find(([figure]) => figure.test(name))?.[1] ?? '']),
  }
}
