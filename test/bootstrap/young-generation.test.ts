import { execFileSync } from 'node:child_process'
import t from 'tap'

const MODULE = new URL('../../src/bootstrap/young-generation.ts', import.meta.url).href

/** A process in which objects survive, until `isDone`; how much larger its young generation has become. */
function growth(start: string, isDone: string): number {
  const script = `
    import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
    import { growYoungGeneration } from '${MODULE}'
    const halfMb = () => {
      const space = getHeapSpaceStatistics().find((one) => one.space_name === 'new_space')
      return Math.round((space.space_used_size + space.space_available_size) / 1024 / 1024)
    }
    setFlagsFromString('--semi-space-growth-factor=1')
    const before = halfMb()
    ${start}
    const kept = []
    let turns = 0
    for (; !(${isDone}); turns++) {
      kept[turns % 64] = Array.from({ length: 4096 }, (_, n) => ({ n, numbers: [n, n, n] }))
      await new Promise(setImmediate)
    }
    process.stdout.write(String(halfMb() / before))`
  return Number(execFileSync(process.execPath, ['--max-semi-space-size=16', '--input-type=module', '--eval', script], { encoding: 'utf8', env: {} }))
}

t.test('the young generation keeps its size while collections are rare, whatever survives', async (t) => {
  t.equal(growth('growYoungGeneration(Infinity, 1000)', 'turns > 256 && performance.now() > 3000'), 1)
})

t.test('the young generation grows while collections are frequent', async (t) => {
  t.ok(growth('growYoungGeneration(0, 1000)', 'halfMb() >= 16') > 1)
})
