import t from 'tap'
import { tally, type FileReport } from './tally.ts'

/** Reads a TAP stream to its end and gives back what was counted. */
function count(lines: string): { passed: number; failed: string[]; skipped: string[]; files: FileReport[] } {
  const files: FileReport[] = []
  const { parser, sum } = tally((file) => files.push(file))
  parser.end(lines)
  return {
    passed: sum.passed,
    failed: sum.failed.map(({ name }) => name.join(' > ')),
    skipped: sum.skipped.map(({ name, reason }) => `${name.join(' > ')}: ${reason}`),
    files,
  }
}

t.test('a test counts once however many asserts it has, and a group of tests not at all', async (t) => {
  const { passed, failed, files } = count(`TAP version 14
# Subtest: a.test.ts
    # Subtest: group
        # Subtest: one
            ok 1 - x
            ok 2 - y
            1..2
        ok 1 - one # time=1ms
        # Subtest: two
            ok 1 - x
            not ok 2 - y
            1..2
        not ok 2 - two # time=1ms
        1..2
    not ok 1 - group # time=2ms
    1..1
not ok 1 - a.test.ts # time=3ms
1..1
`)
  t.equal(passed, 1)
  t.same(failed, ['a.test.ts > group > two'])
  t.match(files, [{ file: 'a.test.ts', durationMs: 3, passed: 1, failed: [{ wrong: [{ what: 'y' }] }] }])
})

t.test('a file that crashes counts as failed, besides its passed tests', async (t) => {
  const { passed, failed } = count(`TAP version 14
# Subtest: a.test.ts
    # Subtest: one
        ok 1 - x
        1..1
    ok 1 - one
not ok 1 - a.test.ts # time=3ms
  ---
  exitCode: null
  signal: SIGKILL
  ...
1..1
`)
  t.equal(passed, 1)
  t.same(failed, ['a.test.ts'])
})

t.test('a stream that is cut off has failed', async (t) => {
  const { failed } = count('TAP version 14\n# Subtest: a.test.ts\n    # Subtest: one\n        ok 1 - x\n')
  t.same(failed, ['the run'])
})

t.test('skipped and todo tests are neither passed nor failed, and say why', async (t) => {
  const { passed, failed, skipped } = count(`TAP version 14
# Subtest: a.test.ts
    ok 1 - suite # SKIP no server
    # Subtest: inside
        ok 1 - no client # SKIP
        1..1
    ok 2 - inside
    ok 3 - later # TODO
    1..3
ok 1 - a.test.ts
1..1
`)
  t.equal(passed, 0)
  t.same(failed, [])
  t.same(skipped, ['a.test.ts > suite: no server', 'a.test.ts > inside: no client', 'a.test.ts > later: todo'])
})
