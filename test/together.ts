/**
 * `node test/together.ts`: runs the test files that standard input names, a line each, one after another in one process, as subtests of their names. Apart, each would spend most
 * of its processor time on loading the same modules and on code that has just begun to run. Each has a `t` of its own: that is what `import t from 'tap'` gives it.
 */
import { readFileSync } from 'node:fs'
import { registerHooks } from 'node:module'
import { resolve } from 'node:path'
import { pathToFileURL } from 'node:url'
import tap, { type Test } from 'tap'

const OWN = 'tap-of:'
const tests = new Map<string, Test>()

/** The `t` of the test file at this address. Throws if it is not run. */
export function testOf(url: string): Test {
  const test = tests.get(url)
  if (!test) throw new Error(`${url} is not run`)
  return test
}

registerHooks({
  resolve(specifier, context, next) {
    const { parentURL = '' } = context
    return specifier === 'tap' && tests.has(parentURL) ? { url: OWN + parentURL, shortCircuit: true } : next(specifier, context)
  },
  load(url, context, next) {
    if (!url.startsWith(OWN)) return next(url, context)
    const [own, file] = [import.meta.url, url.slice(OWN.length)].map((text) => JSON.stringify(text))
    return { source: `import { testOf } from ${own}\nexport default testOf(${file})`, format: 'module', shortCircuit: true }
  },
})

for (const file of readFileSync(0, 'utf8').trim().split('\n')) {
  const { href } = pathToFileURL(file)
  // Not awaited: files import this module, which ends before they begin.
  void tap.test(file, async (t) => {
    t.testdirName = resolve('.tap/fixtures', file.replaceAll('/', '-'))
    tests.set(href, t)
    await import(href)
  })
}
