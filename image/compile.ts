/**
 * `node image/compile.ts`, in the image: writes V8's compiled code of the program to `compiled/`, from where bin/compile-cache.mjs takes it. A container's file system is
 * read-only, so that its every start would be a first start. Node finds the code of a file by its absolute path.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, globSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openCompileCache } from '../bin/compile-cache.mjs'

const ROOT = join(import.meta.dirname, '..')
const COMPILED = join(ROOT, 'compiled')
/** Roles that differ in V8's flags, and their folders. */
const FOLDERS = { all: 'roles', controller: 'controller' }
const MODULES = ['src/**/*.ts', 'plugins/**/*.ts']
/** The page of the dashboard, and what runs in threads and child processes. */
const OTHERS = ['plugins/dashboard/web/**', '**/{thread-entry,render-thread}.ts', 'src/backends/engines/local/image/**']

/** Starts all roles with the flags of this one, and loads what another configuration would load. Node writes the compiled code when the process exits. */
async function compile(role: string): Promise<void> {
  const flagsChanged = openCompileCache(role)
  // Not before the cache is open.
  const { setStartFlags } = await import('../src/bootstrap/start-memory.ts')
  setStartFlags(role, flagsChanged)
  process.argv = [process.execPath, 'tollgate']
  await import('../src/main.ts')
  for (const file of globSync(MODULES, { cwd: ROOT, exclude: OTHERS })) await import(join(ROOT, file))
  process.kill(process.pid)
}

const [role] = process.argv.slice(2)
if (role !== undefined) await compile(role)
else {
  const data = mkdtempSync(join(tmpdir(), 'tollgate-'))
  const env = { ...process.env, DATA_DIR: data, HOST: '127.0.0.1', PORT: '0', OPS_HOST: '127.0.0.1', OPS_PORT: '0', LOG_LEVEL: 'error' }
  for (const [each, folder] of Object.entries(FOLDERS)) {
    // The program uses a folder that is there.
    mkdirSync(join(COMPILED, folder), { recursive: true })
    execFileSync(process.execPath, [import.meta.filename, each], { cwd: ROOT, env, stdio: 'inherit' })
  }
  rmSync(data, { recursive: true })
  // Node lets only the user who wrote a file read it.
  for (const file of globSync('*/*', { cwd: COMPILED })) chmodSync(join(COMPILED, file), 0o644)
}
