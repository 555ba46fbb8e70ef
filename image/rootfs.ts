/** Builds the image's file system in a folder without Docker: the files that the Dockerfile copies, the production dependencies, and programs with their shared libraries. */
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, cpSync, existsSync, globSync, mkdirSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Recipe } from './dockerfile.ts'
import { writeSbom } from './sbom.ts'

const NODE = '/usr/local/bin/node'
/** What a run of the local engine is started with. */
const SHELL = ['/bin/sh', '/usr/bin/env']
/** The programs of a Debian package. */
const PROGRAMS: Record<string, string[]> = { ffmpeg: ['/usr/bin/ffmpeg', '/usr/bin/ffprobe'] }

const ETC = {
  passwd: 'root:x:0:0::/root:/sbin/nologin\nnode:x:1000:1000::/tmp:/sbin/nologin\n',
  group: 'root:x:0:\nnode:x:1000:\n',
  'nsswitch.conf': 'hosts: files dns\n',
}

/** A shell's commands: runs Node on $3 in the folder $1 as its root, in the folder $2 of that. Node reads /proc; its options may name files outside of the image. */
const IN_IMAGE = 'unset NODE_OPTIONS; mount -t proc proc "$1/proc"; exec unshare --root "$1" --wd "$2" -- "$NODE" "$3"'

/** Fills `folder`, which must be empty. `root` is the checkout. Run as root, it also sets the owner of the data folder, and adds compiled code. */
export function fillRootfs(folder: string, root: string, { copies, install, packages, workdir, env }: Recipe): void {
  const inside = (path: string) => join(folder, path)
  for (const path of ['etc', 'tmp', 'proc', 'dev', workdir]) mkdirSync(inside(path), { recursive: true })
  chmodSync(inside('tmp'), 0o1777)
  for (const [name, text] of Object.entries(ETC)) writeFileSync(inside(`etc/${name}`), text)

  const data = inside(env['DATA_DIR'] ?? '/data')
  mkdirSync(data, { mode: 0o700 })
  if (process.getuid?.() === 0) chownSync(data, 1000, 1000)

  const app = inside(workdir)
  execFileSync(join(root, 'node_modules/.bin/node'), [join(root, 'plugins/dashboard/build.mjs')], { stdio: 'inherit' })
  for (const { from, to } of copies) cpSync(join(root, from), join(app, to), { recursive: true })
  cpSync(join(root, 'package-lock.json'), join(app, 'package-lock.json'))
  execFileSync('npm', ['ci', ...install, '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'], { cwd: app, stdio: 'inherit' })
  if (!install.includes('--workspaces=false')) execFileSync(process.execPath, [join(app, 'engines/image/prune.mjs')])
  execFileSync(process.execPath, [join(root, 'image/prune.mjs'), join(app, 'node_modules')])
  rmSync(join(app, 'package-lock.json'))
  writeSbom(app, root)

  copyProgram(folder, join(root, 'node_modules/.bin/node'), NODE)
  for (const program of SHELL) copyProgram(folder, program)
  addPackages(folder, packages)
  // Libraries of the system that those of sharp and ONNX Runtime need.
  for (const library of globSync(['@img/sharp-libvips-*/lib/*.so*', 'onnxruntime-node/bin/**/*.so*'], { cwd: join(app, 'node_modules') })) copyLibraries(folder, join(app, 'node_modules', library))
  compileProgram(folder, root, workdir, env)
}

/** The Dockerfile's stage `compiled`. Compiled code is found by the path of its source, so that it is made where the image's folder is the root, which needs root. */
function compileProgram(folder: string, root: string, workdir: string, env: Recipe['env']): void {
  if (process.getuid?.() !== 0) return console.log('Without root, the image has no compiled code: it starts slower and takes more memory')
  const script = 'image/compile.ts'
  const temporary = join(folder, workdir, dirname(script))
  mkdirSync(temporary)
  cpSync(join(root, script), join(folder, workdir, script))
  const args = ['--mount', '--propagation', 'private', 'sh', '-euc', IN_IMAGE, 'sh', folder, workdir, script]
  execFileSync('unshare', args, { env: { ...env, PATH: process.env['PATH'], NODE }, stdio: 'inherit' })
  rmSync(temporary, { recursive: true })
  for (const name of readdirSync(join(folder, 'tmp'))) rmSync(join(folder, 'tmp', name), { recursive: true })
}

/** Adds the programs of Debian packages that this machine has installed. Throws for one that is missing here. */
export function addPackages(folder: string, packages: readonly string[]): void {
  for (const name of packages) {
    const programs = PROGRAMS[name]
    if (!programs) throw new Error(`image/rootfs.ts does not know the programs of the package ${name}`)
    for (const program of programs) {
      if (!existsSync(program)) throw new Error(`${program} is missing: apt-get install ${name}`)
      copyProgram(folder, program)
    }
  }
}

function copyProgram(folder: string, from: string, to = from): void {
  copy(folder, from, to)
  copyLibraries(folder, from)
}

/** Copies the shared libraries of a program or library to where it expects them. */
function copyLibraries(folder: string, program: string): void {
  for (const line of execFileSync('ldd', [program], { encoding: 'utf8' }).split('\n')) {
    const path = /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1]
    if (path !== undefined) copy(folder, path, path)
  }
}

function copy(folder: string, from: string, to: string): void {
  const target = join(folder, to)
  mkdirSync(dirname(target), { recursive: true })
  cpSync(realpathSync(from), target)
}
