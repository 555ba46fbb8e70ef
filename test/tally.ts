import { Parser, type FinalResults, type Result } from 'tap-parser'

/** One failure of a test: an assert, or the end of the test. */
export type Wrong = { what: string; diag: Record<string, unknown> }
/** `name` is the path to a test, from its file inwards. */
export type FailedTest = { name: string[]; wrong: Wrong[] }
export type SkippedTest = { name: string[]; reason: string }
export type Tally = { passed: number; failed: FailedTest[]; skipped: SkippedTest[] }

/** The tally of one file. `printed` is its standard output other than TAP. */
export type FileReport = Tally & { file: string; durationMs: number; printed: string }

/** Counts of a test's or a file's own asserts and of the tests inside it. */
type Level = { name: string[]; passed: number; wrong: Wrong[]; skipped: number; inside: number; failedInside: number }

/** The name of failures outside of all files. */
export const THE_RUN = 'the run'

/**
 * Counts a TAP stream (https://testanything.org) by tests, not by asserts. A test with asserts of its own counts once: failed when
 * one of them failed. A test that only groups others does not count, unless it failed by itself: timed out, threw, was killed,
 * broke its plan. A file counts likewise. Skipped and todo tests are neither passed nor failed. `onFile` is called as each file ends.
 */
export function tally(onFile: (report: FileReport) => void): { parser: Parser; sum: Tally } {
  const sum: Tally = { passed: 0, failed: [], skipped: [] }
  const parser = new Parser()
  let before = { passed: 0, failed: 0, skipped: 0 }
  let printed = ''
  parser.on('extra', (text: string) => (printed += text))
  parser.on('bailout', (reason: unknown) => sum.failed.push({ name: ['bail out'], wrong: [{ what: String(reason), diag: {} }] }))

  const root = follow(parser, [], sum, (result) => {
    const { passed, failed, skipped } = sum
    onFile({
      file: result.name,
      durationMs: result.time ?? 0,
      printed,
      passed: passed - before.passed,
      failed: failed.slice(before.failed),
      skipped: skipped.slice(before.skipped),
    })
    before = { passed, failed: failed.length, skipped: skipped.length }
    printed = ''
  })
  parser.on('complete', (results: FinalResults) => {
    const broken = !results.ok && sum.failed.length === 0 ? [{ what: 'the TAP stream was cut off or broken', diag: {} }] : []
    const wrong = [...root.wrong, ...broken]
    if (wrong.length > 0) sum.failed.push({ name: [THE_RUN], wrong })
  })
  return { parser, sum }
}

function follow(parser: Parser, name: string[], sum: Tally, closed: (result: Result) => void): Level {
  const level: Level = { name, passed: 0, wrong: [], skipped: 0, inside: 0, failedInside: 0 }
  let open: Level | null = null
  parser.on('child', (child: Parser) => {
    open = follow(child, [...name, child.name], sum, () => {})
  })
  parser.on('assert', (result: Result) => {
    if (open === null && !result.skip && !result.todo) own(level, result)
    else if (open === null || result.skip || result.todo) skip(level, result, sum)
    else close(level, open, result, sum)
    if (open !== null) closed(result)
    open = null
  })
  return level
}

function own(level: Level, result: Result): void {
  if (result.ok) level.passed++
  else level.wrong.push({ what: result.name, diag: result.diag ?? {} })
}

function skip(level: Level, result: Result, sum: Tally): void {
  level.skipped++
  const reason = [result.skip, result.todo].find((text) => typeof text === 'string' && text !== '')
  // t.skip('why') inside a test is an assert of that name without a reason.
  if (reason === undefined && !result.todo) sum.skipped.push({ name: level.name, reason: result.name })
  else sum.skipped.push({ name: [...level.name, result.name], reason: String(reason ?? 'todo') })
}

function close(level: Level, ended: Level, result: Result, sum: Tally): void {
  level.inside++
  const unexplained = !result.ok && ((ended.wrong.length === 0 && ended.failedInside === 0) || Boolean(result.diag?.signal))
  const wrong = unexplained ? [...ended.wrong, { what: 'it ended badly', diag: result.diag ?? {} }] : ended.wrong
  level.failedInside += ended.failedInside
  if (wrong.length > 0) {
    level.failedInside++
    sum.failed.push({ name: ended.name, wrong })
  } else if (ended.passed > 0 || (ended.inside === 0 && ended.skipped === 0)) {
    sum.passed++
  }
}
