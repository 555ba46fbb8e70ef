/**
 * `npm run simulate -- --seeds N [--seed K] [--scenario media|coding] [--store sqlite|mongodb]`: runs N seeds from K on (1), and stops at the first that
 * violates an invariant, with its trace. `npm run simulate -- --bugs [--only <part of a name>]`: plants every bug in the list of that store and prints the
 * seed that found it.
 * MongoDB is the server at `MONGODB_URL`, or one that is started for the run (`npm run servers`). Exit code 1 when an invariant was violated or a bug was
 * missed.
 */
import { parseArgs } from 'node:util'
import { startMongodb } from '../servers/mongodb.ts'
import { BUGS } from './bugs.ts'
import { MONGODB_BUGS } from './bugs-mongodb.ts'
import { detectBugs } from './planted-bugs.ts'
import { scenarioOf, runSeed, type SeedResult } from './run-seed.ts'
import { FAULT_POINTS } from './fault-injection.ts'

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
    scenario: { type: 'string' },
    store: { type: 'string', default: 'sqlite' },
    bugs: { type: 'boolean', default: false },
    /** Part of the names of the bugs to plant. */
    only: { type: 'string', default: '' },
    /** No trace. */
    brief: { type: 'boolean', default: false },
  },
})

const CHOICES = { scenario: Object.keys(FAULT_POINTS), store: ['sqlite', 'mongodb'] }
for (const name of ['scenario', 'store'] as const) {
  const [value, choices] = [values[name], CHOICES[name]]
  if (value === undefined || choices.includes(value)) continue
  console.error(`--${name} is one of ${choices.join(', ')}, not ${value}.`)
  process.exit(2)
}

function* seedsFrom(first: number, count: number): Generator<number> {
  for (let seed = first, found = 0; found < count; seed++) {
    if (values.scenario !== undefined && values.scenario !== scenarioOf(seed)) continue
    found++
    yield seed
  }
}

async function runAll(server: string | null): Promise<void> {
  const figures = { seeds: 0, steps: 0, tasks: 0, requests: 0 }
  const start = performance.now()
  for (const seed of seedsFrom(Number(values.seed), Number(values.seeds))) {
    const result = await runSeed(seed, { server })
    figures.seeds++
    figures.steps += result.steps
    figures.tasks += result.tasks
    figures.requests += result.requests
    if (result.violations.length > 0) return fail(result, server, figures.seeds)
  }
  const seconds = (performance.now() - start) / 1000
  const { seeds, steps, tasks, requests } = figures
  const what = `${steps} steps, ${tasks} tasks, ${requests} coding requests in ${seconds.toFixed(1)} s`
  console.log(`Every invariant held in ${seeds} seeds: ${what}.`)
}

async function fail({ seed, scenario, faults, violations }: SeedResult, server: string | null, number: number): Promise<void> {
  process.exitCode = 1
  if (values.brief) return console.log(`seed ${seed}, number ${number}: ${violations[0]}`)
  const { trace } = await runSeed(seed, { traced: true, server })
  console.log(trace.join('\n'))
  console.log(`\nSeed ${seed} (${scenario}; ${faults}) violated an invariant after the last of these steps:`)
  for (const sentence of violations) console.log(`- ${sentence}`)
  console.log(`To repeat: npm run simulate -- --seeds 1 --seed ${seed}${server === null ? '' : ' --store mongodb'}`)
}

async function detectPlantedBugs(server: string | null): Promise<void> {
  let missed = 0
  const bugs = (server === null ? BUGS : MONGODB_BUGS).filter(({ name }) => name.includes(values.only))
  await detectBugs(bugs, server, (detection) => {
    const { bug } = detection
    if (detection.outcome === 'found') {
      const where = `found by seed ${detection.seed}, number ${detection.tried} of ${bug.within}`
      return console.log(`${where.padEnd(40)} ${bug.name}: ${detection.sentence}`)
    }
    missed++
    console.log(`${detection.outcome.toUpperCase().padEnd(40)} ${bug.name}\n${detection.output}`)
  })
  console.log(missed === 0 ? 'Every planted bug was found.' : `${missed} planted bugs were not found.`)
  if (missed > 0) process.exitCode = 1
}

const started = values.store === 'mongodb' && !process.env['MONGODB_URL'] ? await startMongodb() : null
try {
  const server = values.store === 'mongodb' ? (started?.url ?? process.env['MONGODB_URL'] ?? null) : null
  await (values.bugs ? detectPlantedBugs(server) : runAll(server))
} finally {
  await started?.stop()
}
