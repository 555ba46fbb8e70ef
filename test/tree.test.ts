/** What lies in the tree: no file that nothing uses, and no large file. */
import { readdirSync, readFileSync, statSync } from 'node:fs'
import { basename, join, relative } from 'node:path'
import t from 'tap'

const ROOT = join(import.meta.dirname, '..')

/** What `npm ci`, a start or a build makes (.gitignore), and git itself. */
const MADE = /^(\.git|data|\.tap)$|^node_modules$|\/node_modules$|^plugins\/dashboard\/dist[^/]*$|\.tgz$/

/** Every file of the tree as it is checked out, by its path from the root. */
function filesOf(folder = ROOT): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name)
    if (MADE.test(relative(ROOT, path)) || entry.isSymbolicLink()) return []
    return entry.isDirectory() ? filesOf(path) : [relative(ROOT, path)]
  })
}

/** Files that a program finds by their folder or their kind, without a name. */
const FOUND = [
  /\.test\.ts$/,
  /\.d\.m?ts$/,
  /^\.[a-z]+ignore$|^\.editorconfig$|rc(\.json)?$/,
  /^charts\/tollgate\/(templates|files|\.helmignore)/,
  /^docs\/decisions\//,
  /^docs\/runbooks\//,
  /^test\/chart\/values\//,
  /^plans\//,
  /^LICENSE$/,
]

const files = filesOf()

t.test('each file is named by another one, or found by its folder', async (t) => {
  const texts = files.filter((file) => !/\.(webp|jpg|png|onnx|tgz)$/.test(file)).map((file) => ({ file, text: readFileSync(join(ROOT, file), 'utf8') }))
  const isNamed = (one: string) => texts.some(({ file, text }) => file !== one && text.includes(basename(one)))
  t.same(files.filter((file) => !FOUND.some((kind) => kind.test(file)) && !isNamed(file)), [])
})

t.test('only one file is not formatted; the list only gets shorter', async (t) => {
  const exceptions = readFileSync(join(ROOT, '.prettierignore'), 'utf8').split('\n').filter((line) => line !== '' && !line.startsWith('#') && !line.includes('dist'))
  t.same(exceptions, ['plugins/docs/openapi-operations.ts'])
})

t.test('no file is large: 48 kB, 300 kB for what a program generates, 5 MB for a model', async (t) => {
  const GENERATED = /^package-lock\.json$|^charts\/tollgate\/(values\.schema\.json|files\/)/
  const large = files.map((file) => ({ file, bytes: statSync(join(ROOT, file)).size })).filter(({ file, bytes }) => bytes > (file.endsWith('.onnx') ? 5_000_000 : GENERATED.test(file) ? 300_000 : 48_000))
  t.same(large, [])
})
