import { execFileSync } from 'node:child_process'
import t from 'tap'

const MODULE = new URL('../../src/bootstrap/young-generation.ts', import.meta.url).href

/** A process in which 64 MB survive, in turns of the event loop; its young generation at the end, in MB of one half. */
function halfAfter(start: string): number {
  const script = `
    import { growYoungGeneration, halfOfYoungGeneration } from '${MODULE}'
    ${start}
    const kept = []
    for (let turn = 0; turn < 256; turn++) {
      for (let n = 0; n < 4096; n++) kept.push({ turn, numbers: [n, n, n] })
      await new Promise(setImmediate)
    }
    process.stdout.write(String(Math.round(halfOfYoungGeneration() / 1024 / 1024)))`
  return Number(execFileSync(process.execPath, ['--max-semi-space-size=32', '--input-type=module', '--eval', script], { encoding: 'utf8', env: {} }))
}

t.test('the young generation grows to its limit, and no further', async (t) => {
  t.equal(halfAfter('growYoungGeneration()'), 8)
  t.equal(halfAfter('growYoungGeneration(2 * 1024 * 1024)'), 2)
  t.ok(halfAfter('') > 8, 'V8 by itself grows it further')
})
