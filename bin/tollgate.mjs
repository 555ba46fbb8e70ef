#!/usr/bin/env node
import { limitStartMemory, openCompileCache } from './v8.mjs'

// Plain JavaScript on purpose: an old Node cannot parse the TypeScript imported below, and would fail with a stack trace.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 26 || (major === 26 && minor < 1)) {
  console.error(
    `Tollgate needs Node 26.1 or newer and this is ${process.version}. ` +
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
const ready = limitStartMemory(process.argv[2] ?? (process.env['ROLE'] || 'all'), openCompileCache())
await import('../src/main.ts')
ready()
