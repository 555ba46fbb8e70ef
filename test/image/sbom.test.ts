/** The bill of materials and the licences of what ships. */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import t from 'tap'
import { licenseList, licenseOf, sbomOf } from '../../image/sbom.ts'

const ROOT = join(import.meta.dirname, '../..')

/** Licences that may be linked into an Apache-2.0 program and shipped with it. */
const ALLOWED = ['0BSD', 'Apache-2.0', 'BlueOak-1.0.0', 'BSD-2-Clause', 'BSD-3-Clause', 'CC0-1.0', 'ISC', 'MIT', 'MIT-0', 'PSF-2.0', 'Unlicense', 'Zlib']
/** Others, by package, with the reason. */
const EXCEPTIONS: Record<string, { license: string; reason: string }> = {
  '@img/sharp-libvips-': { license: 'LGPL-3.0-or-later', reason: 'a shared library of its own, which can be replaced' },
}

const sbom = sbomOf()
const named = (list: readonly { name: string; version: string }[]) => [...new Set(list.map(({ name, version }) => `${name} ${version}`))].sort()

t.test('it lists the production packages, those in the page of the dashboard, and Node', async (t) => {
  const read = (path: string) => JSON.parse(readFileSync(join(ROOT, path), 'utf8'))
  const direct = Object.keys(read('package.json').dependencies).map((name) => read(`node_modules/${name}/package.json`))
  const bundled: { name: string; version: string; text: string }[] = read('plugins/dashboard/dist/licenses.json')
  t.ok(['preact', '@preact/signals'].every((name) => bundled.some((one) => one.name === name && one.text !== '')), JSON.stringify(named(bundled)))
  const names = named(sbom.components)
  t.same(named([...direct, ...bundled, { name: 'node', version: process.versions.node }]).filter((name) => !names.includes(name)), [])
  t.same(names.filter((name) => /^(tap|typescript|vite|oxlint|playwright-core) /.test(name)), [], 'no tool of the development')
  t.match(sbom, { bomFormat: 'CycloneDX', specVersion: '1.5', metadata: { component: { name: 'tollgate', type: 'application' } } })
  const refs = new Set([sbom.metadata.component, ...sbom.components].map((component) => component['bom-ref']))
  t.same(sbom.dependencies.flatMap(({ ref, dependsOn }) => [ref, ...dependsOn]).filter((ref) => !refs.has(ref)), [])
})

t.test('it lists every model that ships, by its content', (t) => {
  const models = readdirSync(join(ROOT, 'engines/image/models')).filter((file) => file.endsWith('.onnx'))
  t.same(sbom.components.filter(({ type }) => type === 'machine-learning-model').map(({ name }) => name).sort(), models.sort())
  t.match(sbom.components.find(({ name }) => name === 'u2netp.onnx'), { hashes: [{ alg: 'SHA-256', content: /^[0-9a-f]{64}$/ }], licenses: [{ license: { id: 'Apache-2.0' } }] })
  t.end()
})

t.test('every licence is on the list of those that may ship, and every exception is used', async (t) => {
  const exceptionOf = (name: string) => Object.keys(EXCEPTIONS).find((prefix) => name.startsWith(prefix))
  const refused = sbom.components.filter((component) => {
    const allowed = [...ALLOWED, EXCEPTIONS[exceptionOf(component.name) ?? '']?.license]
    // Of alternatives one is enough; of what is combined all must be allowed.
    return !licenseOf(component).split(' OR ').some((one) => one.replace(/[()]/g, '').split(' AND ').every((id) => allowed.includes(id.trim())))
  })
  t.same(refused.map((component) => `${component.name}: ${licenseOf(component)}`), [])
  t.same(Object.keys(EXCEPTIONS).filter((prefix) => !sbom.components.some(({ name }) => name.startsWith(prefix))), process.platform === 'linux' ? [] : Object.keys(EXCEPTIONS))
})

t.test('the list of licences has every component once', async (t) => {
  const lines = licenseList(sbom.components).split('\n').filter((line) => line.startsWith('  '))
  t.same([...new Set(lines.map((line) => line.trim()))].sort(), named(sbom.components))
})
