/** `node test/upstream/response-fuzz.ts [--cases N] [--seed S]`: compares N responses (100,000) from seed S (1) on with what undici makes of them, and stops at the first difference without a reason. */
import { parseArgs } from 'node:util'
import { checkResponse } from './response-cases.ts'

const { values } = parseArgs({ options: { cases: { type: 'string', default: '100000' }, seed: { type: 'string', default: '1' } } })
const [cases, first] = [Number(values.cases), Number(values.seed)]
for (let seed = first; seed < first + cases; seed++) {
  const { bytes, difference } = await checkResponse(seed)
  if (difference === null) continue
  console.error(`Seed ${seed}: ${JSON.stringify(bytes)}\n${difference}`)
  process.exit(1)
}
console.log(`No difference without a reason in ${cases} responses.`)
