/** What the image operations share: how they fail, and what they end with. */

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
  ({ outcome: 'made' } & Size) | { outcome: 'failed'; code: InputError['code']; cause: string; details?: TaskErrorDetails }

export type Size = { width: number; height: number }
export type Progress = (percent: number) => void

/** What an operation ends with. Rejects with whatever else it throws. */
export async function resultOf(operation: Promise<Size>): Promise<ProgramResult> {
  return operation.then(
    ({ width, height }): ProgramResult => ({ outcome: 'made', width, height }),
    (error: unknown): ProgramResult => {
      if (!(error instanceof InputError)) throw error
      const { code, message, details } = error
      return { outcome: 'failed', code, cause: message, ...(details && { details }) }
    },
  )
}
