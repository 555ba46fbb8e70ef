/** What a start with every setting at its default loads and compiles. */
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { PROGRAM, REPOSITORY, startProcess } from './program.ts'

/** Loaded with the first use, or never on the embedded side. */
const UNUSED = [
  '@fastify/http-proxy', '@fastify/swagger', '@fastify/swagger-ui', '@kubernetes/client-node', '@modelcontextprotocol/node', '@modelcontextprotocol/server',
  '@opentelemetry/exporter-trace-otlp-proto', '@opentelemetry/sdk-trace', '@tensorflow/tfjs-core', 'aws4fetch', 'gpt-tokenizer', 'kafkajs', 'mongodb', 'openid-client', 'pino-pretty', 'sharp', 'ws', 'zod',
]

/** Prints the URL of each module that the main thread loads. */
const LIST = `import { registerHooks } from 'node:module'
import { writeSync } from 'node:fs'
registerHooks({ load: (url, context, next) => (writeSync(1, 'loaded ' + url + '\\n'), next(url, context)) })`

function folder(t: Test): string {
  const folder = t.testdir({})
  cpSync(join(REPOSITORY, 'plans'), join(folder, 'plans'), { recursive: true })
  return folder
}

t.test('an idle program has loaded no package of a backend, engine or protocol that nobody has used yet', async (t) => {
  const program = await startProcess({ folder: folder(t), argv: [process.execPath, '--import', `data:text/javascript,${encodeURIComponent(LIST)}`, PROGRAM] })
  await program.stop()
  const packages = new Set(program.log.map((line) => /^loaded .*\/node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(line)?.[1]))
  t.ok(packages.has('fastify'), 'loaded packages are listed')
  t.same(UNUSED.filter((name) => packages.has(name)), [])
})

t.test('hot code is compiled once the program is ready, by both compilers', async (t) => {
  const env = { NODE_COMPILE_CACHE: t.testdir({}) }
  const program = await startProcess({ folder: folder(t), env, argv: [process.execPath, '--trace-opt', PROGRAM] })
  for (const compiler of ['MAGLEV', 'TURBOFAN_JS']) {
    await eventually(compiler, async () => {
      for (let n = 0; n < 16; n++) await Promise.all(Array.from({ length: 32 }, async () => (await fetch(`${program.url}/openapi.json`)).arrayBuffer()))
      return program.log.some((line) => line.includes('[completed compiling') && line.includes(`(target ${compiler})`)) || null
    })
    t.pass(compiler)
  }
  await program.stop()
})
