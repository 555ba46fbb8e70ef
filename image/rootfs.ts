/** Builds the image's file system in a folder without Docker: the files that the Dockerfile copies, the production dependencies, and Node with its shared libraries. */
import { execFileSync } from 'node:child_process'
import { chmodSync, chownSync, cpSync, mkdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import type { Recipe } from './dockerfile.ts'

const NODE = 'usr/local/bin/node'

const ETC = {
  passwd: 'root:x:0:0::/root:/sbin/nologin\nnode:x:1000:1000::/tmp:/sbin/nologin\n',
  group: 'root:x:0:\nnode:x:1000:\n',
  'nsswitch.conf': 'hosts: files dns\n',
}

/** Fills `folder`, which must be empty. `root` is the checkout. Run as root, it also sets the owner of the data folder. */
export function fillRootfs(folder: string, root: string, { copies, workdir, env }: Recipe): void {
  const inside = (path: string) => join(folder, path)
  for (const path of ['etc', 'tmp', 'proc', 'dev', workdir]) mkdirSync(inside(path), { recursive: true })
  chmodSync(inside('tmp'), 0o1777)
  for (const [name, text] of Object.entries(ETC)) writeFileSync(inside(`etc/${name}`), text)

  const data = inside(env['DATA_DIR'] ?? '/data')
  mkdirSync(data, { mode: 0o700 })
  if (process.getuid?.() === 0) chownSync(data, 1000, 1000)

  const app = inside(workdir)
  for (const { from, to } of copies) cpSync(join(root, from), join(app, to), { recursive: true })
  cpSync(join(root, 'package-lock.json'), join(app, 'package-lock.json'))
  execFileSync('npm', ['ci', '--omit=dev', '--ignore-scripts', '--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'], { cwd: app, stdio: 'inherit' })
  rmSync(join(app, 'package-lock.json'))

  const node = join(root, 'node_modules/node/bin/node')
  for (const [from, to] of [[node, NODE] as const, ...librariesOf(node)]) {
    mkdirSync(dirname(inside(to)), { recursive: true })
    cpSync(realpathSync(from), inside(to))
  }
}

/** Shared libraries of a program: where each file is, and where the program expects it. */
function librariesOf(program: string): (readonly [string, string])[] {
  const lines = execFileSync('ldd', [program], { encoding: 'utf8' }).split('\n')
  return lines.flatMap((line) => {
    const path = /(?:=> )?(\/\S+) \(0x/.exec(line)?.[1]
    return path === undefined ? [] : [[path, path] as const]
  })
}
