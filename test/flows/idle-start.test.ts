/** What a start with every setting at its default loads and compiles. */
import { cpSync } from 'node:fs'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { eventually } from './eventually.ts'
import { PROGRAM, REPOSITORY, startProcess } from './program.ts'

/** Loaded with the first use, or never on the embedded side. */
const UNUSED = [
  '@fastify/http-proxy', '@fastify/swagger', '@fastify/swagger-ui', '@kubernetes/client-node', '@modelcontextprotocol/node', '@modelcontextprotocol/server',
  '@opentelemetry/exporter-trace-otlp-proto', '@opentelemetry/sdk-trace', 'onnxruntime-node', 'aws4fetch', 'gpt-tokenizer', 'kafkajs', 'mongodb', 'openid-client', 'pino-pretty', 'sharp', 'ws', 'zod',
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
  const loaded = program.log.filter((line) => line.startsWith('loaded '))
  const hasLoaded = (name: string) => loaded.some((line) => `${line}/`.includes(`/node_modules/${name}/`))
  t.ok(hasLoaded('fastify'), 'loaded packages are listed')
  t.same(UNUSED.filter(hasLoaded), [])
})

/** Calls a function for ever, and prints each compiler that has compiled it. Its caller stays uncompiled: it would include the function. */
const HOT = `import { writeSync } from 'node:fs'
const hot = (n) => n % 7 + 1
let sum = 0
const seen = new Set()
const call = () => {
  for (let n = 0; n < 500; n++) sum += hot(n)
  for (const [compiler, isActive] of [['Maglev', %ActiveTierIsMaglev(hot)], ['TurboFan', %ActiveTierIsTurbofan(hot)]]) {
    if (!isActive || seen.has(compiler)) continue
    seen.add(compiler)
    writeSync(1, 'compiled by ' + compiler + '\\n')
  }
}
%NeverOptimizeFunction(call)
setInterval(call, 1).unref()`

t.test('hot code is compiled once the program is ready, by both compilers', async (t) => {
  const program = await startProcess({ folder: folder(t), argv: [process.execPath, '--allow-natives-syntax', '--import', `data:text/javascript,${encodeURIComponent(HOT)}`, PROGRAM] })
  for (const compiler of ['Maglev', 'TurboFan']) {
    const line = `compiled by ${compiler}`
    t.ok(await eventually(line, async () => program.log.includes(line) || null), line)
  }
  await program.stop()
})
