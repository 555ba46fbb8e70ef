/** The part of `tollgate config` that lists what this machine can run. */
import { join } from 'node:path'
import t from 'tap'
import { engineReport } from '../../src/bootstrap/engine-report.ts'

const route = (kind: string, engine: string) => `  - { ${kind}, engine: ${engine}, price: { amount: "1", per: Job } }\n`

t.test('every route is listed, with what is missing for it', async (t) => {
  const folder = t.testdir({
    'engines.yaml': `engines:\n  - { name: preview, type: preview }\n  - { name: local, type: local, ffmpeg: /nowhere }\nroutes:\n${route('kind: image', 'preview')}${route('operation: trim', 'local')}${route('operation: upscale', 'preview')}`,
  })
  const lines = await engineReport({ ENGINES: join(folder, 'engines.yaml'), environment: {} }, Date.now)
  t.match(lines, ['image: engine preview', /^trim: not available with engine local: ffmpeg is not installed/, 'upscale: not available with engine preview: the engine of this route does not make it'])
})

t.test('a file that cannot be used is one sentence', async (t) => {
  const folder = t.testdir({ 'plugin.yaml': `engines:\n  - { name: a, type: solid-colour }\nroutes:\n${route('kind: image', 'a')}` })
  t.match(await engineReport({ ENGINES: join(folder, 'plugin.yaml'), environment: {} }, Date.now), [/line 2: engine a: type solid-colour is not available; there are: preview, local, local-image, openai, replicate\.$/])
  t.match(await engineReport({ ENGINES: join(folder, 'none.yaml'), environment: {} }, Date.now), [/ENOENT/])
})
