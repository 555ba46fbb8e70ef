import { execFileSync } from 'node:child_process'
import { constants, openSync, readFileSync, readSync, closeSync } from 'node:fs'
import { Registry } from 'prom-client'
import t, { type Test } from 'tap'
import { openLogOutput } from '../../src/bootstrap/log-output.ts'

/** A pipe with an end that writes, and a function that reads what is in it. */
function openPipe(t: Test): { fd: number; read: () => string; hangUp: () => void } {
  const path = `${t.testdir()}/pipe`
  execFileSync('mkfifo', [path])
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK)
  const fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK)
  const buffer = Buffer.alloc(1 << 20)
  return {
    fd,
    read: () => {
      try {
        return buffer.toString('utf8', 0, readSync(reader, buffer))
      } catch {
        return ''
      }
    },
    hangUp: () => closeSync(reader),
  }
}

const numbered = (from: number, count: number) => Array.from({ length: count }, (_, i) => `${from + i} ${'x'.repeat(1000)}\n`)

t.test('every line is written, in order, also those of several batches', async (t) => {
  const file = `${t.testdir()}/log`
  const output = openLogOutput(openSync(file, 'w'), () => {})
  const lines = numbered(0, 100)
  for (const line of lines) output.write(line)
  t.ok(await output.flush(60_000))
  t.equal(readFileSync(file, 'utf8'), lines.join(''))
})

t.test('lines beyond the bound are dropped and counted while nobody reads; the others arrive, and the drop is reported once', async (t) => {
  const pipe = openPipe(t)
  const reports: number[] = []
  const output = openLogOutput(pipe.fd, (dropped) => reports.push(dropped))
  const registry = new Registry()
  output.register(registry)
  const lines = numbered(0, 6_000)
  for (const line of lines) output.write(line)
  t.notOk(await output.flush(0))
  t.same(reports, [])
  const flushed = output.flush(60_000)
  let text = ''
  while (reports.length === 0) {
    text += pipe.read()
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.ok(await flushed)
  text += pipe.read()
  const dropped = reports[0] ?? 0
  t.equal(text, lines.slice(0, lines.length - dropped).join(''))
  t.ok(dropped > 1_000 && dropped < 3_000)
  t.match(await registry.metrics(), `tollgate_log_lines_dropped_total ${dropped}\n`)
})

t.test('without a reader, nothing is kept and nothing waits', async (t) => {
  const pipe = openPipe(t)
  const output = openLogOutput(pipe.fd, () => {})
  pipe.hangUp()
  for (const line of numbered(0, 10)) output.write(line)
  t.ok(await output.flush(60_000))
  output.write('later\n')
  t.ok(await output.flush(60_000))
  output.flushNow()
})
