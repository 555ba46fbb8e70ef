#!/usr/bin/env node
import { setFlagsFromString } from 'node:v8'

// Plain JavaScript on purpose: an old Node cannot parse the TypeScript that follows, and would say so with a stack trace.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 24 || (major === 24 && minor < 15)) {
  console.error(
    `Tollgate needs Node 24.15 or newer and this is ${process.version}. ` +
      'In a checkout, `npm ci` brings a newer one: start it with `npm start`.',
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
// A start makes much garbage and keeps little of it. For that V8 would let its young generation grow to 32 MB, and not take them back from a process that is idle.
setFlagsFromString('--semi-space-growth-factor=1')
// A controller waits for its API server and not for its garbage: beside ten thousand keys it stays 150 MB smaller with a young generation as small as this, and an old one that grows by half.
const isController = (process.argv[2] ?? process.env['ROLE']) === 'controller'
if (isController) setFlagsFromString('--heap-growing-percent=50')
await import('../src/main.ts')
if (!isController) setFlagsFromString('--semi-space-growth-factor=2')
