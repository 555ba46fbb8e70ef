/**
 * What the programs of the image operations share. Each runs in a child process: one job as JSON in its first argument, and lines of JSON on standard output,
 * `{"percent": 40}` while it works and its result last.
 */

import type { TaskErrorDetails } from '../../src/domain/task.ts'

/** An input is at fault, or the limits are: the run would fail again. `cause` is for the operator's log, `details` are for the tenant. */
export class InputError extends Error {
  readonly code: 'unsupported_input' | 'input_too_large' | 'several_pictures' | 'mask_mismatch' | 'result_too_large' | 'cannot_fill'
  readonly details: TaskErrorDetails | undefined

  constructor(code: InputError['code'], cause: string, details?: TaskErrorDetails) {
    super(cause)
    this.code = code
    this.details = details
  }
}

/** The last line of a program. */
export type ProgramResult =
  | { outcome: 'made'; width: number; height: number }
  | { outcome: 'failed'; code: InputError['code']; cause: string; details?: TaskErrorDetails }

/** Runs a program's one function on its job. Whatever it throws, apart from an InputError, ends the process with a stack trace on standard error. */
export async function runProgram<Job>(
  run: (job: Job, progress: (percent: number) => void) => Promise<{ width: number; height: number }>,
): Promise<void> {
  const print = (line: object): unknown => process.stdout.write(`${JSON.stringify(line)}\n`)
  const result = await run(JSON.parse(process.argv[2] ?? '') as Job, (percent) => print({ percent })).then(
    ({ width, height }): ProgramResult => ({ outcome: 'made', width, height }),
    (error: unknown): ProgramResult => {
      if (error instanceof InputError) {
        const { code, message, details } = error
        return { outcome: 'failed', code, cause: message, ...(details && { details }) }
      }
      throw error
    },
  )
  print(result)
}
