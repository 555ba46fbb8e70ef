/** The media of a task as MCP content: an image that a model can see, and a link. */
import type { ContentBlock } from '@modelcontextprotocol/server'
import type { FastifyBaseLogger } from 'fastify'
import type { Files } from '../../src/backends/files/files.ts'
import type { Task, TaskResult } from '../../src/domain/task.ts'

/** A larger image comes as its link alone: both sides hold content in memory, in base64. */
const IMAGE_BYTES_MAX = 2 * 1024 * 1024

/** Types that models can see. */
const VISIBLE = ['image/png', 'image/jpeg', 'image/webp', 'image/gif']

type Backends = { files: Files; link: (result: TaskResult) => string; log: FastifyBaseLogger }

/** The content of a completed task; none before. An image that cannot be read now is left out, with its link kept. */
export async function mediaContent({ files, link, log }: Backends, task: Task): Promise<ContentBlock[]> {
  if (task.state !== 'completed' || task.outcome?.outcome !== 'completed') return []
  const { result } = task.outcome
  const { contentType: mimeType, bytes: size } = result
  const linked: ContentBlock = { type: 'resource_link', uri: link(result), name: result.file, title: `${task.verb} of task ${task.id}`, mimeType, size }
  if (!VISIBLE.includes(mimeType) || size > IMAGE_BYTES_MAX) return [linked]
  const data = await read(files, result.file).catch((err: unknown) => {
    log.warn({ event: 'mcp_image_unavailable', err, taskId: task.id }, 'image not read for MCP content')
    return null
  })
  return data ? [{ type: 'image', data: data.toString('base64'), mimeType }, linked] : [linked]
}

async function read(files: Files, id: string): Promise<Buffer | null> {
  const file = await files.get(id)
  return file && Buffer.concat(await file.stream.toArray())
}
