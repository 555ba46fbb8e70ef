#!/usr/bin/env node
import module from 'node:module'
import { fileURLToPath } from 'node:url'

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
const roleOrCommand = process.argv[2] ?? (process.env['ROLE'] || 'all')
// Compiled code without its types: later starts, and the database's threads, neither compile it nor load the stripper of types, 25 MB in each thread. Threads take the folder from the environment.
// The controller has a folder of its own, because V8 refuses code that was compiled with other flags.
process.env.NODE_COMPILE_CACHE ??= fileURLToPath(new URL(`../node_modules/.cache/tollgate${roleOrCommand === 'controller' ? '-controller' : ''}`, import.meta.url))
module.enableCompileCache(process.env.NODE_COMPILE_CACHE)
const { limitStartMemory } = await import('../src/bootstrap/start-memory.ts')
const ready = limitStartMemory(roleOrCommand)
await import('../src/main.ts')
ready()
