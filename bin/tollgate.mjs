#!/usr/bin/env node
import module from 'node:module'
import { fileURLToPath } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'

const ORDINARY_START_MS = 5_000
const LARGE_HEAP_BYTES = 100 * 1024 * 1024

// Plain JavaScript on purpose: an old Node cannot parse the TypeScript imported below, and would fail with a stack trace.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 24 || (major === 24 && minor < 15)) {
  console.error(
    `Tollgate needs Node 24.15 or newer and this is ${process.version}. ` +
      'In a checkout, `npm ci` installs a newer one: start it with `npm start`.',
  )
  process.exit(1)
}
// npm forwards SIGTERM and SIGINT but cannot forward SIGKILL: a program whose npm is gone stops by itself.
if (process.env['npm_lifecycle_event'] === 'start') {
  const npm = process.ppid
  const watch = setInterval(() => {
    if (process.ppid === npm) return
    clearInterval(watch)
    process.kill(process.pid, 'SIGTERM')
  }, 1_000)
  watch.unref()
}
// A start allocates much short-lived memory. V8 would grow its young generation to 32 MB for it, and not shrink it while the process is idle.
setFlagsFromString('--semi-space-growth-factor=1')
// A controller is limited by its API server, not by garbage collection: with ten thousand keys it uses 150 MB less with this small young generation, and an old generation that grows by half.
const isController = (process.argv[2] ?? process.env['ROLE']) === 'controller'
if (isController) setFlagsFromString('--heap-growing-percent=50')
// Compiled code without its types: later starts, and the database's threads, neither compile it nor load the stripper of types, 25 MB in each thread. Threads take the folder from the environment.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL('../node_modules/.cache/tollgate', import.meta.url))
module.enableCompileCache(process.env.NODE_COMPILE_CACHE)
// The compilers of hot code take 15 MB, and a start has no hot code: nothing passes their filters until it is ready, or takes longer than any ordinary start.
const compileHotCode = (filter) => ['turbo', 'maglev'].forEach((compiler) => setFlagsFromString(`--${compiler}-filter=${filter}`))
const isStart = ['all', 'gateway', 'worker', 'dispatcher'].includes(process.argv[2] ?? process.env['ROLE'] ?? 'all')
if (isStart) {
  compileHotCode('~')
  setTimeout(compileHotCode, ORDINARY_START_MS, '*').unref()
}
await import('../src/main.ts')
if (!isController) (await import('../src/bootstrap/young-generation.ts')).growYoungGeneration()
if (isStart) {
  compileHotCode('*')
  releaseMemory()
}

/** Returns the memory that only the start used to the system: 12 MB, in a tenth of a second. Node has no interface for it. A large heap would take longer than clients should wait. */
function releaseMemory() {
  if (process.memoryUsage().heapUsed > LARGE_HEAP_BYTES) return
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')({ type: 'major', flavor: 'last-resort' })
  setFlagsFromString('--no-expose-gc')
}
