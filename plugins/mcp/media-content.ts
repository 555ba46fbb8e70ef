/** The media of a task as MCP content: what a model can look at, and a link to it. */
import type { ContentBlock } from '@modelcontextprotocol/server'
import type { FastifyBaseLogger } from 'fastify'
import type { Files } from '../../src/backends/files/files.ts'
import type { Task, TaskResult } from '../../src/domain/task.ts'

/** Above this an image comes as its link alone: content is held in memory, in base64, on both sides. */
const IMAGE_BYTES_MAX = 2 * 1024 * 1024

/** What models can look at. */
const SHOWN = ['image/png', 'image/jpeg', 'image/webp', 'image/gif']

type Backends = { files: Files; link: (result: TaskResult) => string; log: FastifyBaseLogger }

/** Nothing before the task is completed. An image that cannot be read now is left out; its link stays. */
export async function mediaContent({ files, link, log }: Backends, task: Task): Promise<ContentBlock[]> {
  if (task.state !== 'completed' || task.outcome?.outcome !== 'completed') return []
  const { result } = task.outcome
  const { contentType: mimeType, bytes: size } = result
  const linked: ContentBlock = { type: 'resource_link', uri: link(result), name: result.file, title: `${task.verb} of task ${task.id}`, mimeType, size }
  if (!SHOWN.includes(mimeType) || size > IMAGE_BYTES_MAX) return [linked]
  const data = await read(files, result.file).catch((err: unknown) => {
    log.warn({ err, taskId: task.id }, 'an image could not be shown')
    return null
  })
  return data ? [{ type: 'image', data: data.toString('base64'), mimeType }, linked] : [linked]
}

async function read(files: Files, id: string): Promise<Buffer | null> {
  const file = await files.get(id)
  return file && Buffer.concat(await file.stream.toArray())
}
