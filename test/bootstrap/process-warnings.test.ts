import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import t from 'tap'

const module = JSON.stringify(new URL('../../src/bootstrap/process-warnings.ts', import.meta.url).href)

t.test('a warning of Node or a library is a log line and nothing else', async (t) => {
  const code = `
    import { logProcessWarnings } from ${module}
    logProcessWarnings({ warn: ({ event, err }, text) => console.log(JSON.stringify([event, err.name, err.message, text])) })
    process.emitWarning('old', 'DeprecationWarning')`
  const { stdout, stderr } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', code])
  t.equal(stdout, '["process_warning","DeprecationWarning","old","warning of Node or a library"]\n')
  t.equal(stderr, '')
})
