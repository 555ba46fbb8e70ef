/** Invariants of the sources and results of operations. */
import { sourcesOf, type OperationInput } from '../../../src/domain/media-operations.ts'
import { FINAL, type Task } from '../../../src/domain/task.ts'
import { sourceFile } from '../../../src/tasks/inline-sources.ts'
import type { Report, Seen } from '../invariant-checker.ts'
import { LINKS, PNG, type SimulatedFiles } from '../media/files.ts'

export function openFileChecks(seen: Seen, files: SimulatedFiles, report: Report, now: () => number) {
  /** The source of an operation: its upload, a link of an earlier result, or an address. */
  function isGone({ input }: Task): boolean {
    return sourcesOf(input as OperationInput).some(({ from }) => {
      if (typeof from !== 'string') return false
      return from.startsWith(LINKS) ? !files.stored.has(from.slice(LINKS.length)) : now() >= (files.vanishing.get(from) ?? 0)
    })
  }

  /** Called after a task changed. */
  function changed(before: Task | null, after: Task): void {
    const failed = !before?.outcome && after.outcome?.outcome === 'failed' ? after.outcome.code : null
    if (failed === 'unsupported_input') report(`task ${after.id} failed because of its source, which is a picture`)
    if (failed === 'input_unreachable' && !isGone(after)) report(`task ${after.id} failed because its source was gone, but it is there`)
  }

  /** Called after the recovery. */
  function checkFinal(): void {
    for (const task of seen.tasks.values()) {
      if (task.object === 'generation' || !FINAL.includes(task.state) || task.state === 'rejected') continue
      for (const { path, from } of sourcesOf(task.input as OperationInput)) {
        const upload = sourceFile(task.id, path)
        if (typeof from !== 'string' && files.stored.has(upload) && !files.removing.has(upload)) report(`task ${task.id} is ${task.state}, and its upload was never removed`)
        const fetched = sourceFile(`${task.id}-${task.epoch}`, path)
        if (task.state === 'completed' && files.stored.has(fetched) && !files.removing.has(fetched)) report(`the source that task ${task.id} fetched was never removed`)
      }
      if (task.outcome?.outcome === 'completed') checkResult(task, task.outcome.result.file)
    }
  }

  function checkResult({ id, epoch }: Task, file: string): void {
    if (files.expired.has(file)) return
    const bytes = files.stored.get(file)?.bytes.subarray(PNG.length).toString()
    if (bytes !== resultOf({ id, epoch })) report(`the result of task ${id} is ${bytes === undefined ? 'not there' : 'that of another run'}`)
  }

  return { changed, checkFinal }
}

/** What follows the picture in the result of a run. */
export function resultOf({ id, epoch }: Pick<Task, 'id' | 'epoch'>): string {
  return `made by epoch ${epoch} of ${id}`
}
