/** Sources that came with their request, as data: URLs: in the files backend from before the hold to the end of the task. */
import { sourcesOf, type Sourced } from '../domain/media-operations.ts'
import type { Task } from '../domain/task.ts'
import type { Upload } from './source-urls.ts'
import type { TaskContext } from './task-context.ts'

type Uploaded = Pick<Task, 'id' | 'input'>
type UploadContext = Pick<TaskContext, 'files' | 'clock' | 'resultMs' | 'log'>

/** The id in the files backend of a source, by its task (or by task and epoch) and its path in the body. */
export function sourceFile(prefix: string, path: string): string {
  return `${prefix}${path.replaceAll(/[/_]/g, '-')}`
}

/** Stores the uploads of a task, all or none. Throws `Unavailable`. */
export async function storeInlineSources(context: UploadContext, task: Uploaded, uploads: readonly Upload[]): Promise<void> {
  const facts = { contentType: 'application/octet-stream', expiresAt: context.clock() + context.resultMs }
  const stored = await Promise.allSettled(
    uploads.map(({ field, bytes }) => context.files.put(sourceFile(task.id, `/${field}`), bytes, facts)),
  )
  const failed = stored.find((put) => put.status === 'rejected')
  if (!failed) return
  await removeInlineSources(context, task)
  throw failed.reason
}

/** Removes the uploads of a task that has ended or was refused. An upload that cannot be removed now expires. */
export async function removeInlineSources(context: UploadContext, { id, input }: Uploaded): Promise<void> {
  const paths = sourcesOf(input as Sourced).flatMap(({ path, from }) => (typeof from === 'string' ? [] : [path]))
  await removeFiles(
    context,
    paths.map((path) => sourceFile(id, path)),
  )
}

/** Removes source files. A file that cannot be removed now expires. */
export async function removeFiles({ files, log }: Pick<TaskContext, 'files' | 'log'>, ids: readonly string[]): Promise<void> {
  await Promise.all(
    ids.map((file) =>
      files
        .remove(file)
        .catch((err: unknown) => log.warn({ event: 'source_not_removed', err, file }, 'source file not removed, it expires later')),
    ),
  )
}
