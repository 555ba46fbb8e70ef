import { stripTypeScriptTypes } from 'node:module'
import t from 'tap'
import { BUGS } from './bugs.ts'
import { detectBugs, planted, type Detection } from './planted-bugs.ts'
import { runSeed } from './run-seed.ts'

/** For more there is `npm run simulate`. */
const SEEDS = 20
/** Of bugs that need no more seeds, one in each file is found here; the others are only parsed. `npm run simulate -- --bugs` finds all. */
const FEW = 20

t.test('every invariant holds after every step and after recovery, whatever crashes, freezes, is lost or late', async (t) => {
  for (let seed = 1; seed <= SEEDS; seed++) {
    const { scenario, faults, violations } = await runSeed(seed)
    t.same(violations, [], `seed ${seed}: ${scenario}, ${faults}`)
  }
})

t.test('a seed is reproducible, step by step', async (t) => {
  for (const seed of [3, 4]) {
    const [first, again] = [await runSeed(seed, { traced: true }), await runSeed(seed, { traced: true })]
    t.ok(first.trace.length > first.steps)
    t.same(again.trace, first.trace)
  }
})

t.test('every bug of the list can be planted, and leaves a program that can be parsed', async (t) => {
  for (const bug of BUGS) t.doesNotThrow(() => stripTypeScriptTypes(planted(bug)), bug.name)
  t.ok(BUGS.length >= 90)
  t.equal(new Set(BUGS.map(({ name }) => name)).size, BUGS.length)
})

t.test('planted bugs are found within a few seeds', async (t) => {
  const detected = (detection: Detection) => {
    if (detection.outcome === 'found') t.pass(`${detection.bug.name}: seed ${detection.seed}`)
    else t.fail(`${detection.outcome}: ${detection.bug.name}`, { output: detection.output })
  }
  const quick = BUGS.filter(({ within }) => within <= FEW)
  // Other files run meanwhile.
  await detectBugs([...new Map(quick.map((bug) => [bug.file, bug])).values()], null, detected, 1)
})
