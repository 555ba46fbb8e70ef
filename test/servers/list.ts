import type { Entry } from './cache.ts'
import { npmPackage } from './npm.ts'
import { pythonPackage } from './python.ts'

/** Everything that `npm run servers` installs, at the version that the tests run against. To add one: a line here, and a file beside this one if its install is of a new kind. */
export const LIST: readonly Entry[] = [
  npmPackage('codex', '@openai/codex', '0.169.0', 'node_modules/.bin/codex'),
  npmPackage('openai-node', 'openai', '7.55.0', 'node_modules/openai/index.mjs'),
  pythonPackage('openai-python', 'openai', '3.52.0'),
]
