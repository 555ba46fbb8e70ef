/** The settings of V8: the compiled code of an image where no temporary folder can be made, and the size of the young generation. */
import { execFile, execFileSync } from 'node:child_process'
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { mock } from 'node:test'
import { promisify } from 'node:util'
import { cachedDataVersionTag } from 'node:v8'
import t from 'tap'
import { limitStartMemory } from '../../bin/v8.mjs'

const MODULE = join(import.meta.dirname, '../../bin/v8.mjs')

t.test('a start does not fail where no temporary folder can be made', async (t) => {
  const folder = t.testdir({ bin: {}, compiled: {} })
  const module = join(folder, 'bin/v8.mjs')
  cpSync(MODULE, module)
  const code = `
    import { openCompileCache } from ${JSON.stringify(module)}
    openCompileCache()()
    console.log(process.env.NODE_COMPILE_CACHE)`
  const file = join(folder, 'file')
  writeFileSync(file, '')
  const { NODE_COMPILE_CACHE: _, ...others } = process.env
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { env: { ...others, TMPDIR: file } })
  const used = stdout.trim()
  t.match(used, /^\/dev\/shm\/tollgate-compiled-|\/node_modules\/\.cache\/tollgate$/)
  t.equal(stderr, '')
  // Root may write to every folder, and then it is kept.
  rmSync(used, { recursive: true, force: true })
})

t.test('threads that begin late in a long start find compiled code too, under the flags of then', async (t) => {
  mock.timers.enable({ apis: ['setTimeout'] })
  t.teardown(() => mock.timers.reset())
  const linked: number[] = []
  limitStartMemory('verify', () => linked.push(cachedDataVersionTag()))
  t.same(linked, [cachedDataVersionTag()])
  mock.timers.tick(5_000)
  t.same(linked.slice(1), [cachedDataVersionTag()])
  t.not(linked[1], linked[0])
})

// An unknown one would only print a line.
t.test('V8 has every flag that is set', async (t) => {
  const set = [...readFileSync(MODULE, 'utf8').matchAll(/--(?:no-)?(\$\{compiler\}[a-z-]*|[a-z-]+)/g)].flatMap(([, name = '']) => ['turbo', 'maglev'].map((compiler) => name.replace('${compiler}', compiler)))
  t.ok(set.length > 0)
  const known = execFileSync(process.execPath, ['--v8-options'], { encoding: 'utf8', maxBuffer: 16 * 1024 * 1024 })
  for (const name of new Set(set)) t.match(known, new RegExp(`^  --${name} `, 'm'))
})

/** A process in which objects survive, until `isDone`; how much larger its young generation has become. */
function growth(start: string, isDone: string): number {
  const script = `
    import { getHeapSpaceStatistics, setFlagsFromString } from 'node:v8'
    import { growYoungGeneration } from '${pathToFileURL(MODULE).href}'
    // Between two collections V8 may lend it pages, which the next one takes back.
    const halfMb = () => {
      gc({ type: 'minor' })
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
  const flags = ['--expose-gc', '--max-semi-space-size=16', '--input-type=module']
  return Number(execFileSync(process.execPath, [...flags, '--eval', script], { encoding: 'utf8', env: {} }))
}

t.test('the young generation keeps its size while collections are rare, whatever survives', async (t) => {
  t.equal(growth('growYoungGeneration(Infinity, 1000)', 'turns > 256 && performance.now() > 3000'), 1)
})

t.test('the young generation grows while collections are frequent', async (t) => {
  t.ok(growth('growYoungGeneration(0, 1000)', 'halfMb() >= 16') > 1)
})

t.test('it grows as soon as there were as many collections as a window may have', async (t) => {
  t.ok(growth('growYoungGeneration(0.01, 10_000_000)', 'halfMb() >= 16 || turns > 3000') > 1)
})
