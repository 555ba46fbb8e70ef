/** Making what a task asks for: engine → files. What it cost follows from the price that the task was quoted at. */
import type { Engines, Control } from '../backends/engines/engine.ts'
import type { Files } from '../backends/files/files.ts'
import { costOf, type GenerationRequest } from '../domain/generations.ts'
import type { Made } from './claim-and-retry.ts'
import type { Task } from '../domain/task.ts'

export type EngineContext = {
  engines: Engines
  files: Files
  clock: () => number
  resultMs: number
  log: { warn(facts: object, message: string): void }
}

/**
 * Runs the engine of a task that is `processing` and puts the result away under `taskId-epoch`. Rejects with the signal's reason when it is aborted, and with
 * `Unavailable` when the result cannot be stored: the run is then made again.
 */
export async function make(context: EngineContext, task: Task, control: Control): Promise<Made> {
  const request = { verb: task.verb, ...task.input } as GenerationRequest
  const made = await context.engines.run(request, control)
  if (made.outcome === 'failed') {
    context.log.warn({ taskId: task.id, err: made.cause, code: made.code, retryable: made.retryable }, 'an engine failed')
    return { outcome: 'failed', code: made.code, retryable: made.retryable }
  }
  const file = `${task.id}-${task.epoch}`
  const expiresAt = context.clock() + context.resultMs
  const stored = await context.files.put(file, made.body, { contentType: made.contentType, expiresAt })
  const result = { file, contentType: made.contentType, bytes: stored.size, ...made.facts, expiresAt }
  return { outcome: 'made', result, cost: costOf(task.price, made.used) }
}
