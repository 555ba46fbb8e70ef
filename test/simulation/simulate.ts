/**
 * `npm run simulate -- --seeds N [--seed K] [--story media|coding] [--store sqlite|mongodb]`: tells N seeds from K on (1), and stops at the
 * first that breaks an invariant, with its trace. `npm run simulate -- --bugs`: plants every bug of that store's list and says at which seed
 * it was found. MongoDB's server is the one of `MONGODB_URL`, or else one that is started for the run (`npm run servers`). Exit code 1 when an
 * invariant broke, or a bug was missed.
 */
import { parseArgs } from 'node:util'
import { startMongodb } from '../servers/mongodb.ts'
import { BUGS } from './bugs.ts'
import { MONGODB_BUGS } from './bugs-mongodb.ts'
import { huntAll } from './planted-bugs.ts'
import { storyOf, tell, type Told } from './seed.ts'
import { MOMENTS } from './faults.ts'

const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '200' },
    seed: { type: 'string', default: '1' },
    story: { type: 'string' },
    store: { type: 'string', default: 'sqlite' },
    bugs: { type: 'boolean', default: false },
    /** No trace. */
    brief: { type: 'boolean', default: false },
  },
})

const CHOICES = { story: Object.keys(MOMENTS), store: ['sqlite', 'mongodb'] }
for (const name of ['story', 'store'] as const) {
  const [value, choices] = [values[name], CHOICES[name]]
  if (value === undefined || choices.includes(value)) continue
  console.error(`--${name} is one of ${choices.join(', ')}, not ${value}.`)
  process.exit(2)
}

function* seedsFrom(first: number, count: number): Generator<number> {
  for (let seed = first, found = 0; found < count; seed++) {
    if (values.story !== undefined && values.story !== storyOf(seed)) continue
    found++
    yield seed
  }
}

async function tellAll(server: string | null): Promise<void> {
  const figures = { seeds: 0, steps: 0, tasks: 0, requests: 0 }
  const start = performance.now()
  for (const seed of seedsFrom(Number(values.seed), Number(values.seeds))) {
    const told = await tell(seed, { server })
    figures.seeds++
    figures.steps += told.steps
    figures.tasks += told.tasks
    figures.requests += told.requests
    if (told.violations.length > 0) return fail(told, server, figures.seeds)
  }
  const seconds = (performance.now() - start) / 1000
  const { seeds, steps, tasks, requests } = figures
  const what = `${steps} steps, ${tasks} tasks, ${requests} coding requests in ${seconds.toFixed(1)} s`
  console.log(`Every invariant held in ${seeds} seeds: ${what}.`)
}

async function fail({ seed, story, weather, violations }: Told, server: string | null, nth: number): Promise<void> {
  process.exitCode = 1
  if (values.brief) return console.log(`seed ${seed}, number ${nth}: ${violations[0]}`)
  const { trace } = await tell(seed, { traced: true, server })
  console.log(trace.join('\n'))
  console.log(`\nSeed ${seed} (${story}; ${weather}) broke an invariant after the last of these steps:`)
  for (const sentence of violations) console.log(`- ${sentence}`)
  console.log(`Again: npm run simulate -- --seeds 1 --seed ${seed}${server === null ? '' : ' --store mongodb'}`)
}

async function huntBugs(server: string | null): Promise<void> {
  let missed = 0
  await huntAll(server === null ? BUGS : MONGODB_BUGS, server, (hunted) => {
    const { bug } = hunted
    if (hunted.outcome === 'found') {
      const where = `found by seed ${hunted.seed}, number ${hunted.tried} of ${bug.within}`
      return console.log(`${where.padEnd(40)} ${bug.name}: ${hunted.sentence}`)
    }
    missed++
    console.log(`${hunted.outcome.toUpperCase().padEnd(40)} ${bug.name}\n${hunted.output}`)
  })
  console.log(missed === 0 ? 'Every planted bug was found.' : `${missed} planted bugs were not found.`)
  if (missed > 0) process.exitCode = 1
}

const started = values.store === 'mongodb' && !process.env['MONGODB_URL'] ? await startMongodb() : null
try {
  const server = values.store === 'mongodb' ? (started?.url ?? process.env['MONGODB_URL'] ?? null) : null
  await (values.bugs ? huntBugs(server) : tellAll(server))
} finally {
  await started?.stop()
}
