/**
 * `node image/compile.ts`, in the image: writes V8's compiled code of the program to `compiled/`, from where bin/v8.mjs takes it. A container's file system is
 * read-only, so that its every start would be a first start. Node finds the code of a file by its absolute path.
 */
import { execFileSync } from 'node:child_process'
import { chmodSync, globSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { openCompileCache, setStartFlags } from '../bin/v8.mjs'

const ROOT = join(import.meta.dirname, '..')
const COMPILED = join(ROOT, 'compiled')
const MODULES = ['src/**/*.ts', 'plugins/**/*.ts']
/** The page of the dashboard, and what runs in threads and child processes. */
const OTHERS = ['plugins/dashboard/web/**', '**/{database-thread-main,render-thread}.ts', 'engines/**']

/** Starts all roles, and loads what another configuration would load. Node writes the compiled code when the process exits. */
async function compile(): Promise<void> {
  setStartFlags(openCompileCache())
  process.argv = [process.execPath, 'tollgate']
  await import('../src/main.ts')
  for (const file of globSync(MODULES, { cwd: ROOT, exclude: OTHERS })) await import(join(ROOT, file))
  process.kill(process.pid)
}

if (process.argv[2] === 'child') await compile()
else {
  const data = mkdtempSync(join(tmpdir(), 'tollgate-'))
  const env = { ...process.env, DATA_DIR: data, HOST: '127.0.0.1', PORT: '0', OPS_HOST: '127.0.0.1', OPS_PORT: '0', LOG_LEVEL: 'error' }
  // The program uses a folder that is there.
  mkdirSync(COMPILED, { recursive: true })
  execFileSync(process.execPath, [import.meta.filename, 'child'], { cwd: ROOT, env, stdio: 'inherit' })
  rmSync(data, { recursive: true })
  // Node lets only the user who wrote a file read it.
  for (const file of globSync('*', { cwd: COMPILED })) chmodSync(join(COMPILED, file), 0o644)
}
