#!/usr/bin/env node
// Plain JavaScript on purpose: an old Node cannot parse the TypeScript that follows, and would say so with a stack trace.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number)
if (major < 24 || (major === 24 && minor < 15)) {
  console.error(
    `Tollgate needs Node 24.15 or newer and this is ${process.version}. ` +
      'In a checkout, `npm ci` brings a newer one: start it with `npm start`.',
  )
  process.exit(1)
}
await import('../src/main.ts')
