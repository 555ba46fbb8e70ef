/**
 * `node image/prune.mjs <node_modules>`: removes what installed packages bring for people and for compilers, half of their size: source maps, declarations, documents and tests. Licences
 * stay. Plain JavaScript, because it runs in a stage of the Dockerfile that has nothing else.
 */
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'

const FILES = /\.(map|[cm]?ts|tsbuildinfo|md|markdown)$/i
const LICENCES = /^(licen[cs]e|notice|copying)/i
/** At the root of a package; deeper down a folder of such a name may be code. */
const FOLDERS = new Set(['test', 'tests', '__tests__', 'docs', 'example', 'examples', 'benchmark', 'benchmarks'])
/** The same tables in forms that nothing loads, two thirds of the package: the program imports `esm`. */
const OTHER_FORMS = ['gpt-tokenizer/cjs', 'gpt-tokenizer/data', 'gpt-tokenizer/src']

/** @param {string} folder @param {string[]} entries */
const isPackage = (folder, entries) => entries.includes('package.json') && !folder.endsWith('node_modules')

/** @param {string} folder */
function prune(folder) {
  const entries = readdirSync(folder, { withFileTypes: true })
  const isRoot = isPackage(
    folder,
    entries.map(({ name }) => name),
  )
  for (const entry of entries) {
    const path = join(folder, entry.name)
    if (entry.isDirectory()) {
      if (isRoot && FOLDERS.has(entry.name)) rmSync(path, { recursive: true })
      else prune(path)
    } else if (FILES.test(entry.name) && !LICENCES.test(entry.name)) rmSync(path)
  }
}

const modules = process.argv[2] ?? 'node_modules'
for (const form of OTHER_FORMS) rmSync(join(modules, form), { recursive: true, force: true })
prune(modules)
