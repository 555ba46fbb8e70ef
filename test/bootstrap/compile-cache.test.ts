/** The compiled code of an image: what a start does where its temporary folder cannot be used. */
import { execFile } from 'node:child_process'
import { cpSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'

const MODULE = join(import.meta.dirname, '../../bin/compile-cache.mjs')

t.test('a start does not fail where no temporary folder can be made', async (t) => {
  const folder = t.testdir({ bin: {}, compiled: { roles: {} } })
  const module = join(folder, 'bin/compile-cache.mjs')
  cpSync(MODULE, module)
  const code = `
    import { openCompileCache } from ${JSON.stringify(module)}
    openCompileCache('all')()
    console.log(process.env.NODE_COMPILE_CACHE)`
  const file = join(folder, 'file')
  writeFileSync(file, '')
  const { NODE_COMPILE_CACHE: _, ...others } = process.env
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code], { env: { ...others, TMPDIR: file } })
  const used = stdout.trim()
  t.match(used, /^\/dev\/shm\/tollgate-compiled-|\/node_modules\/\.cache\/tollgate\/roles$/)
  t.equal(stderr, '')
  // Root may write to every folder, and then it is kept.
  rmSync(used, { recursive: true, force: true })
})
