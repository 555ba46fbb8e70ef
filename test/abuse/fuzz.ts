/** `npm run fuzz -- [--cases N] [--seed S]`: runs N cases (100,000) from seed S (1) on, and stops at the first that breaks a promise, with its input. */
import { parseArgs } from 'node:util'
import { check, inputOf } from './fuzz-cases.ts'

const { values } = parseArgs({ options: { cases: { type: 'string', default: '100000' }, seed: { type: 'string', default: '1' } } })
const [cases, first] = [Number(values.cases), Number(values.seed)]
if (!Number.isSafeInteger(cases) || !Number.isSafeInteger(first) || cases < 1) {
  console.error('--cases and --seed are whole numbers.')
  process.exit(2)
}

for (let seed = first; seed < first + cases; seed++) {
  const input = inputOf(seed)
  try {
    check(input)
  } catch (error) {
    console.error(`Seed ${seed}: ${'bytes' in input ? JSON.stringify(input.bytes.toString('latin1')) : JSON.stringify(input)}\n`, error)
    process.exit(1)
  }
}
console.log(`Every promise held in ${cases} cases.`)
