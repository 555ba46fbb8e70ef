/** `npm run drill -- <name>`: practises an operation on real servers, and prints each step with its time, each check, and the minutes of the whole (docs/operations.md). */
const DRILLS: Record<string, string> = {
  restore: './restore.test.ts',
  'sealing-key': './sealing-key.ts',
  upgrade: '../flows/versions.test.ts',
  'node-alert': './node-alert.ts',
  keda: './keda.ts',
  'unwritable-store': './unwritable-store.ts',
  attack: './attack.ts',
  alerts: '../monitoring/drills.test.ts',
  runbooks: '../monitoring/runbooks.test.ts',
}

const [name = '', ...more] = process.argv.slice(2)
const file = more.length === 0 ? DRILLS[name] : undefined
if (file === undefined) {
  console.error(`The drill was "${[name, ...more].join(' ')}"; it must be one of ${Object.keys(DRILLS).join(', ')}.`)
  process.exitCode = 1
} else await import(file)
