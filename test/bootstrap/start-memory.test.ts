import { execFileSync } from 'node:child_process'
import t from 'tap'

const MODULE = new URL('../../src/bootstrap/start-memory.ts', import.meta.url).href

/** V8's tag of compiled code, which has the flags in it, after those for this start were set. */
function tagOf(roleOrCommand: string): string {
  const script = `
    import { cachedDataVersionTag } from 'node:v8'
    import { limitStartMemory } from '${MODULE}'
    limitStartMemory('${roleOrCommand}', () => {})
    process.stdout.write(String(cachedDataVersionTag()))`
  return execFileSync(process.execPath, ['--input-type=module', '--eval', script], { encoding: 'utf8', env: {} })
}

t.test('roles and commands take the same compiled code from the cache; the controller, with flags of its own, another', async (t) => {
  const tag = tagOf('all')
  for (const other of ['gateway', 'worker', 'dispatcher', 'verify']) t.equal(tagOf(other), tag, other)
  t.not(tagOf('controller'), tag)
})
