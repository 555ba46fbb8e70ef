#!/usr/bin/env node
// `npm test [-- file …]`. Plain JavaScript on purpose: where the machine's Node is too old for TypeScript, the one of node_modules takes over.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'

if (Number(process.versions.node.split('.')[0]) >= 26) {
  await import('./runner.ts')
} else {
  const node = join(import.meta.dirname, '../node_modules/.bin/node')
  const { status, error } = spawnSync(node, [import.meta.filename, ...process.argv.slice(2)], { stdio: 'inherit' })
  if (error) console.log(`The tests need Node 26.1 or newer, which \`npm ci\` brings: ${error.message}\n0 passed, 1 failed`)
  process.exitCode = status ?? 1
}
