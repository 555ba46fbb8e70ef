/** CONTRIBUTING.md on an operation of the Media API, to the letter: in a copy of the tree, with a plugin as its engine. */
import { execFile } from 'node:child_process'
import { cp, readFile, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import t from 'tap'
import { folderFor } from '../temporary-folder.ts'
import { answer, at, get, post } from './calls.ts'
import { eventually } from './eventually.ts'
import { apiKey, declare, mediaPlan } from './manifests.ts'
import { REPOSITORY, start } from './program.ts'

const run = (cwd: string, program: string, ...args: string[]) => promisify(execFile)(program, args, { cwd })

const OPERATION = `
import { Type } from 'typebox'
import { defineOperation, media_url } from './operation.ts'

export const fade = defineOperation({
  title: 'Fade an image',
  description: 'Replaces an image by one colour of the same size.',
  reads: 'image',
  route: { engine: 'local', price: { amount: '0.02', per: 'Job' }, max: { megapixels: 16 } },
  fields: { media_url, prompt: Type.String({ minLength: 1, maxLength: 20, description: 'The colour.' }) },
  defaults: () => ({}),
  parameters: ({ prompt }) => ({ prompt: prompt ?? '' }),
})
`

const ROUTES = `
engines:
  - { name: solid, type: solid-colour }
  - { name: preview, type: preview }
routes:
  - { kind: image, engine: preview, price: { amount: "0", per: Job } }
  - { operation: fade, engine: solid, price: { amount: "0.02", per: Job } }
`

/** With the plugins that it imports: their types are made of the list of operations too. */
const TYPED = ['src']
const COPIED = ['src', 'engines', 'plugins', 'bin', 'crds', 'charts', 'docs', 'package.json', 'tsconfig.json']

t.test('an operation is one file and one entry: REST, MCP, OpenAPI, the plan schema and the chart have it', async (t) => {
  const folder = await folderFor(t)
  const root = join(folder, 'tree')
  for (const name of COPIED) await cp(join(REPOSITORY, name), join(root, name), { recursive: true })
  await symlink(join(REPOSITORY, 'node_modules'), join(root, 'node_modules'))
  const edit = async (file: string, change: (text: string) => string) => {
    const text = await readFile(join(root, file), 'utf8')
    const changed = change(text)
    t.not(changed, text, `${file} is edited`)
    await writeFile(join(root, file), changed)
  }

  await writeFile(join(root, 'src/domain/operations/fade.ts'), OPERATION)
  await edit('src/domain/media-operations.ts', (text) =>
    text.replace('export const OPERATION_DEFINITIONS = {', "import { fade } from './operations/fade.ts'\nexport const OPERATION_DEFINITIONS = {\n  fade,"),
  )
  await cp(join(REPOSITORY, 'examples/solid-colour/solid-colour.js'), join(root, 'solid-colour.js'))
  await edit('solid-colour.js', (text) => text.replace("ai_edit: { formats: ['png'] }", "fade: { formats: ['png'] }"))
  await run(root, process.execPath, 'charts/generate.ts')
  await writeFile(join(root, 'tsconfig.json'), (await readFile(join(root, 'tsconfig.json'), 'utf8')).replace(/"include": .*/, `"include": ${JSON.stringify(TYPED)},`))
  await run(root, join(root, 'node_modules/.bin/tsc'))
  for (const file of ['crds/plan.yaml', 'charts/tollgate/files/crds/plan.yaml', 'charts/tollgate/templates/_worker-pools.tpl', 'charts/tollgate/values.schema.json']) {
    t.match(await readFile(join(root, file), 'utf8'), /\bfade\b/, file)
  }

  await declare(folder, 'plans', mediaPlan('studio', {}, { prices: [{ operation: 'fade', amount: '0.03' }] }), apiKey('media', 'studio'))
  await writeFile(join(folder, 'engines.yaml'), ROUTES)
  const env = { RESOURCES_URL: `files:${join(folder, 'plans')}`, ENGINES: join(folder, 'engines.yaml'), PLUGINS: join(root, 'solid-colour.js'), DASHBOARD: 'off' }
  const program = await start({ folder, root, env })
  t.teardown(() => program.kill())
  const key = await program.key('media')

  const source = await eventually('an image to fade', async () => {
    const { body } = await answer(await post(program, key, '/api/v1/generations', { kind: 'image', prompt: 'a pier', size: '64x48' }, undefined, { prefer: 'wait=30' }))
    return at(body, 'result', 'image_url') ?? null
  })
  const faded = await answer(await post(program, key, '/api/v1/operations', { operation: 'fade', media_url: source, prompt: 'orange' }, undefined, { prefer: 'wait=30' }))
  t.match(faded.body, { status: 'completed', operation: 'fade', input: { prompt: 'orange' }, actual_cost: '0.03' })
  const invalid = await answer(await post(program, key, '/api/v1/operations', { operation: 'fade', media_url: source, colour: 'orange' }))
  t.equal(invalid.status, 400)
  t.match(invalid.body, { errors: [{ path: '/prompt' }, { path: '/colour' }] })

  t.ok(JSON.stringify((await get(program, key, '/openapi.json')).body).includes('"enum":["fade",'), 'OpenAPI names it')
  const tools = await post(program, key, '/mcp', { jsonrpc: '2.0', id: 1, method: 'tools/list' }, undefined, { accept: 'application/json, text/event-stream' })
  t.ok((await tools.text()).includes('"name":"fade","title":"Fade an image"'), 'MCP has its tool')
})
