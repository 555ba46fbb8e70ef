/** Accounting over seeds: every admitted request is settled exactly once, with what it must be charged. */
import t from 'tap'
import { accountingFaults } from './coding-accounting.ts'

/** `node test/plugins/coding-accounting.test.ts 1000` runs more. */
const SEEDS = Number(process.argv[2] ?? 20)

t.setTimeout(0)
t.test('concurrent requests are charged exactly, whatever the upstream reports and wherever a client leaves, in both modes', { timeout: 0 }, async (t) => {
  for (let seed = 1; seed <= SEEDS; seed++) await t.test(`seed ${seed}`, async (t) => t.same(await accountingFaults(t, seed), []))
})
