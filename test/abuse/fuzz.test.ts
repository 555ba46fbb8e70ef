/** A bounded run of the fuzzer; `npm run fuzz` runs it for as long as one likes. */
import t from 'tap'
import { check, inputOf } from './fuzz-cases.ts'

const CASES = 20_000

t.test(`the JSON parsers and the request readers of both wires keep their promises in ${CASES} cases`, async (t) => {
  let taken = 0
  for (let seed = 1; seed <= CASES; seed++) {
    const input = inputOf(seed)
    try {
      check(input)
    } catch (error) {
      return t.fail(`npm run fuzz -- --cases 1 --seed ${seed}`, { input, error })
    }
    taken += 'parsers' in input ? 1 : 0
  }
  t.ok(taken > CASES / 3 && taken < CASES, 'both kinds of cases were run')
})
