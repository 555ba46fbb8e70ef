/** A bounded run of the fuzzer; `npm run fuzz` runs it for as long as one likes. */
import t from 'tap'
import { check, inputOf } from './fuzz-cases.ts'

const CASES = 6_000

t.test(`the JSON parsers, the request readers of the three wires, the readers of uploads and pass-through routes keep their promises in ${CASES} cases`, async (t) => {
  const taken = new Set<string>()
  for (let seed = 1; seed <= CASES; seed++) {
    const input = inputOf(seed)
    try {
      check(input)
    } catch (error) {
      return t.fail(`npm run fuzz -- --cases 1 --seed ${seed}`, { input, error })
    }
    taken.add(input.kind)
  }
  t.equal(taken.size, 4, 'every kind of case was run')
})
