/** What a start loads besides our own modules. */
import { execFileSync } from 'node:child_process'
import { join } from 'node:path'
import t from 'tap'
import { REPOSITORY } from './program.ts'

const LOADED = 'process.on("exit", () => console.error(process.moduleLoadList.join()))'

/** Runs `tollgate --help`, which imports what every start imports, and returns the parts of Node that were loaded. */
function partsOfNode(cache: string): string {
  const { PATH = '' } = process.env
  const args = ['--import', `data:text/javascript,${encodeURIComponent(LOADED)}`, join(REPOSITORY, 'bin/tollgate.mjs'), '--help']
  return execFileSync('/bin/sh', ['-c', 'exec "$0" "$@" 2>&1 >/dev/null', process.execPath, ...args], { env: { PATH, NODE_COMPILE_CACHE: cache }, encoding: 'utf8' })
}

t.test('a later start neither strips types nor loads the stripper, and no start loads the library of fetch, which nothing of ours calls', async (t) => {
  const cache = t.testdir({})
  const [first, later] = [partsOfNode(cache), partsOfNode(cache)]
  t.match(first, 'internal/deps/amaro')
  t.notMatch(later, 'internal/deps/amaro')
  t.notMatch(first, 'internal/deps/undici')
})
