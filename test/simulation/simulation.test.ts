import t from 'tap'
import { BUGS } from './bugs.ts'
import { huntAll, planted } from './planted-bugs.ts'
import { tell } from './seed.ts'

/** More are for `npm run simulate`. */
const SEEDS = 40
/** Bugs that hide in more seeds than these are for `npm run simulate -- --bugs`. */
const FEW = 400

t.test('every invariant holds after every step and at rest, whatever crashes, freezes, gets lost or comes late', async (t) => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { story, weather, violations } = await tell(seed)
    t.same(violations, [], `seed ${seed}: ${story}, ${weather}`)
  }
})

t.test('a seed tells the same story again, step by step, in words', async (t) => {
  for (const seed of [2, 4]) {
    const [first, again] = [await tell(seed, { traced: true }), await tell(seed, { traced: true })]
    t.ok(first.trace.length > first.steps)
    t.same(again.trace, first.trace)
  }
})

t.test('every bug of the list can be planted', async (t) => {
  for (const bug of BUGS) t.not(planted(bug), '', bug.name)
  t.ok(BUGS.length >= 15)
  t.equal(new Set(BUGS.map(({ name }) => name)).size, BUGS.length)
})

t.test('planted bugs are found within a few seeds', async (t) => {
  await huntAll(BUGS.filter(({ within }) => within <= FEW), null, (hunted) => {
    if (hunted.outcome === 'found') t.pass(`${hunted.bug.name}: seed ${hunted.seed}`)
    else t.fail(`${hunted.outcome}: ${hunted.bug.name}`, { output: hunted.output })
  })
})
