/**
 * `npm run bench`: benchmarks of Tollgate with everything on against a bare pass-through in the same run, as Markdown on standard output. `bench/notes/README.md` describes the method.
 * All load stays on loopback, bounded in count and time; all files are in a temporary folder.
 */
import { availableParallelism, cpus } from 'node:os'
import { parseArgs } from 'node:util'
import { coding } from './coding.ts'
import { dashboard } from './dashboard.ts'
import { distributed } from './distributed.ts'
import { films } from './films.ts'
import { idle } from './idle.ts'
import { images } from './images.ts'
import { latency, tail } from './latency.ts'
import { lists } from './lists.ts'
import { mcp } from './mcp.ts'
import { operator } from './operator.ts'
import { profile } from './profile.ts'
import { queue } from './queue.ts'
import { openStage, type Choice, type Stage } from './stage.ts'
import { startUp } from './start.ts'
import { markdown, type Table } from './table.ts'
import { tasks } from './tasks.ts'
import { webhooks } from './webhooks.ts'
import { workerMemory } from './worker-memory.ts'

const USAGE = `npm run bench -- [options]
  --parts a,b       of coding, latency, tail, idle, tasks, queue, webhooks, start, images, films, lists, memory, distributed, distributed-plan,
                    distributed-tasks, distributed-webhooks, operator, profile, mcp, dashboard; all but the last seven by default
  --rounds n        number of rounds (5)
  --seconds n       length of a burst of coding requests (3)
  --finished n      finished tasks in the store, for lists and for the sweeps of the distributed side (1000000)
  --keys n          API keys in the cluster for the operator (10000)
  --finalizer-policy  install the chart's finalizer policy in the operator's API servers
  --workloads text  the coding requests whose name has this text (all)
  --against folder  another checkout, whose coding requests and idle streams are measured beside ours
  --log-level l     LOG_LEVEL of Tollgate (info); its log goes to a file
  --pin             gateways on the first core, the model and the clients on the second (needs taskset)
`

type Part = (stage: Stage, choice: Choice) => Promise<Table | Table[]> | AsyncIterable<Table>
const PARTS: Record<string, Part> = {
  coding, latency, tail, idle, tasks, queue, webhooks, start: startUp, images, films, lists, memory: workerMemory, distributed: distributed(), 'distributed-plan': distributed('one-plan'), 'distributed-tasks': distributed('tasks'), 'distributed-webhooks': distributed('webhooks'), operator, profile, mcp, dashboard,
}

const { values } = parseArgs({
  options: {
    parts: { type: 'string', default: 'coding,latency,tail,idle,tasks,queue,webhooks,start,images,films,lists,memory,distributed' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '3' },
    finished: { type: 'string', default: '1000000' },
    keys: { type: 'string', default: '10000' },
    'finalizer-policy': { type: 'boolean', default: false },
    'log-level': { type: 'string', default: 'info' },
    workloads: { type: 'string', default: '' },
    against: { type: 'string' },
    pin: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
})
const chosen = values.parts.split(',')
const choice: Choice = { rounds: Number(values.rounds), seconds: Number(values.seconds), finished: Number(values.finished), keys: Number(values.keys), finalizerPolicy: values['finalizer-policy'], workloads: values.workloads, against: values.against ?? null }
const possible = chosen.every((part) => Object.hasOwn(PARTS, part)) && choice.rounds >= 1 && choice.rounds <= 50 && choice.seconds > 0 && choice.seconds <= 60 && choice.finished >= 1 && choice.finished <= 10_000_000 && choice.keys >= 100 && choice.keys <= 100_000

if (values.help || !possible) {
  process.stderr.write(USAGE)
  process.exitCode = values.help ? 0 : 1
} else {
  await measure()
}

async function measure(): Promise<void> {
  const stage = await openStage({ logLevel: values['log-level'], pin: values.pin })
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => void stage.close().then(() => process.exit(1)))
  try {
    process.stdout.write(`${environment()}\n\n`)
    for (const part of chosen) {
      process.stderr.write(`${part} …\n`)
      for await (const table of tablesOf(PARTS[part]?.(stage, choice))) process.stdout.write(`${markdown(table)}\n`)
    }
  } finally {
    await stage.close()
  }
}

/** Yields the tables of a part, each as soon as it is measured. */
async function* tablesOf(measured: ReturnType<Part> | undefined): AsyncGenerator<Table> {
  if (measured && Symbol.asyncIterator in measured) yield* measured
  else for (const table of [(await measured) ?? []].flat()) yield table
}

function environment(): string {
  const pinned = values.pin ? ', gateways on the first core, model and clients on the second' : ''
  return `Node ${process.versions.node}, ${availableParallelism()} × ${cpus()[0]?.model ?? 'unknown processor'}, ${process.platform}; ${choice.rounds} round(s), bursts of ${choice.seconds} s, LOG_LEVEL=${values['log-level']}${pinned}.`
}
