/**
 * `npm run image -- [--target <stage>] <folder> [<file>.tar [<name>:<tag>]]`: builds the image of the Dockerfile without Docker or an image registry. The folder gets its
 * file system, the file an image archive to load. Linux only: programs and their libraries are copied from this machine.
 */
import { mkdirSync, readdirSync, readFileSync } from 'node:fs'
import { dirname, join, resolve } from 'node:path'
import { parseArgs } from 'node:util'
import { writeArchive } from './archive.ts'
import { readDockerfile } from './dockerfile.ts'
import { fillRootfs } from './rootfs.ts'

const ROOT = join(import.meta.dirname, '..')

const { positionals, values } = parseArgs({ allowPositionals: true, options: { target: { type: 'string' } } })
const [folder, file, name = 'tollgate:dev'] = positionals
if (folder === undefined || process.platform !== 'linux') {
  console.error('npm run image -- [--target <stage>] <folder> [<file>.tar [<name>:<tag>]], on Linux')
  process.exit(1)
}
const recipe = readDockerfile(readFileSync(join(ROOT, 'Dockerfile'), 'utf8'), values.target)
mkdirSync(folder, { recursive: true })
if (readdirSync(folder).length > 0) {
  console.error(`${folder} is not empty`)
  process.exit(1)
}
fillRootfs(resolve(folder), ROOT, recipe)
console.log(`${folder} has the image's files`)
if (file !== undefined) {
  mkdirSync(dirname(resolve(file)), { recursive: true })
  await writeArchive(resolve(folder), resolve(file), name, recipe)
  console.log(`${file} is ${name}: docker load -i ${file}, or ctr -n k8s.io images import ${file}`)
}
