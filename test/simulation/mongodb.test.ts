import t from 'tap'
import { mongodb } from '../servers/mongodb.ts'
import { MONGODB_BUGS } from './bugs-mongodb.ts'
import { huntAll, planted } from './planted-bugs.ts'
import { tell } from './seed.ts'

/** One coding story among them. More are for `npm run simulate -- --store mongodb`: each step asks a real server. */
const SEEDS = [1, 2, 3, 4, 5, 6]
/** Bugs that are found at once; for the others there is `npm run simulate -- --store mongodb --bugs`. */
const QUICK = 20

t.test('over a real MongoDB server every invariant holds, also where a verb is torn between two of its writes', async (t) => {
  const server = await mongodb(t)
  if (server === null) return
  for (const seed of SEEDS) {
    const { story, weather, violations } = await tell(seed, { server })
    t.same(violations, [], `seed ${seed}: ${story}, ${weather}`)
  }
})

t.test('over a real MongoDB server a seed tells the same story again', async (t) => {
  const server = await mongodb(t)
  if (server === null) return
  const [first, again] = [await tell(4, { traced: true, server }), await tell(4, { traced: true, server })]
  t.ok(first.trace.length > first.steps)
  t.same(again.trace, first.trace)
})

t.test('every bug of the list can be planted in the adapter of MongoDB', async (t) => {
  for (const bug of MONGODB_BUGS) t.not(planted(bug), '', bug.name)
})

t.test('bugs in the adapter of MongoDB are found within a few seeds', async (t) => {
  const server = await mongodb(t)
  if (server === null) return
  await huntAll(MONGODB_BUGS.filter(({ within }) => within <= QUICK), server, (hunted) => {
    if (hunted.outcome === 'found') t.pass(`${hunted.bug.name}: seed ${hunted.seed}`)
    else t.fail(`${hunted.outcome}: ${hunted.bug.name}`, { output: hunted.output })
  })
})
