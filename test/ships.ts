/** `node test/ships.ts <folder>`: smoke test of an unpacked image: starts its program from its compiled code, requests /livez and /readyz, and stops it. */
import { mkdir, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { canBox, startBoxed } from './image/boxed.ts'
import { compiledCode } from './image/compiled-code.ts'

const [image] = process.argv.slice(2)
if (image === undefined) throw new Error('usage: node test/ships.ts <folder>')
const folder = await mkdtemp(join(tmpdir(), 'tollgate-'))
await mkdir(join(folder, 'plans'))
const program = await startBoxed({ image: resolve(image), folder, role: 'all', env: { NODE_DEBUG_NATIVE: 'COMPILE_CACHE' } })
console.log(canBox ? 'it runs in a chroot' : 'it runs in place: a chroot needs root')
for (const path of ['/livez', '/readyz']) {
  const { status } = await fetch(`${program.opsUrl}${path}`)
  console.log(`${path} answers ${status}`)
  if (status !== 200) process.exitCode = 1
}
const { code, signal } = await program.stop()
console.log(`it stopped with ${signal ?? code}`)
if (code !== 0) process.exitCode = 1
const { accepted = [], rejected = [], 'not initialized': missing = [] } = compiledCode(program.log)
// V8's flags change when a start takes long.
console.log(`modules with compiled code: ${accepted.length}, for other flags of V8: ${rejected.length}, without: ${missing.length}`)
if (canBox && (accepted.length === 0 || missing.length > 0)) process.exitCode = 1
await rm(folder, { recursive: true })
