/** Writes `messages-schema.json` from the types of npm's `@anthropic-ai/sdk`, at the version that `npm run servers anthropic-node` installs. */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { installed } from '../servers/client.ts'

const TYPES = `
import type { ErrorResponse } from '@anthropic-ai/sdk/resources/shared'
import type { Message, MessageTokensCount, RawMessageStreamEvent } from '@anthropic-ai/sdk/resources/messages'
import type { ModelInfo } from '@anthropic-ai/sdk/resources/models'
export type Answers = [Message, MessageTokensCount, RawMessageStreamEvent, ErrorResponse, ModelInfo]
`

const folder = mkdtempSync(join(tmpdir(), 'tollgate-'))
symlinkSync(join(dirname(installed('anthropic-node')), '../..'), join(folder, 'node_modules'))
writeFileSync(join(folder, 'answers.ts'), TYPES)
const compilerOptions = { module: 'nodenext', target: 'es2022', strict: true, skipLibCheck: true }
writeFileSync(join(folder, 'tsconfig.json'), JSON.stringify({ compilerOptions, files: ['answers.ts'] }))
const options = ['--path', 'answers.ts', '--tsconfig', 'tsconfig.json', '--type', 'Answers', '--no-type-check', '--jsDoc', 'none', '--out', 'schema.json']
execFileSync('npx', ['--yes', 'ts-json-schema-generator@2.10.0', ...options], { cwd: folder, stdio: 'inherit' })
const { definitions } = JSON.parse(readFileSync(join(folder, 'schema.json'), 'utf8')) as { definitions: Record<string, object> }
const lines = Object.entries(definitions).filter(([name]) => name !== 'Answers').map(([name, schema]) => `${JSON.stringify(name)}: ${JSON.stringify(schema)}`)
writeFileSync(join(import.meta.dirname, 'messages-schema.json'), `{"definitions": {\n${lines.join(',\n')}\n}}\n`)
