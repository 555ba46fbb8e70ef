/** The media of a task as MCP content: an image or audio, and a link. */
import type { ContentBlock } from '@modelcontextprotocol/server'
import type { FastifyBaseLogger, FastifyInstance } from 'fastify'
import type { Files } from '../../src/backends/files/files.ts'
import { resultsOf, taskLogFields, type Task, type TaskResult } from '../../src/domain/task.ts'

/** Larger media come as their link alone: both sides hold content in memory, in base64. */
const CONTENT_BYTES_MAX = 2 * 1024 * 1024
/**
 * How many times its size a file counts in the memory of bodies until the response closes: as text in base64, and as a part of the answer.
 */
const COPIES = 3

/** Types of content that models take. MCP has no content for video. */
const CONTENT_TYPES: Record<string, 'image' | 'audio'> = {
  'image/png': 'image',
  'image/jpeg': 'image',
  'image/webp': 'image',
  'image/gif': 'image',
  'audio/wav': 'audio',
  'audio/mpeg': 'audio',
  'audio/flac': 'audio',
  'audio/ogg': 'audio',
  'audio/mp4': 'audio',
  'audio/aac': 'audio',
}

type Backends = { files: Pick<Files, 'get'>; link: (result: TaskResult) => string; log: Pick<FastifyBaseLogger, 'warn'> }

/** Of the tenant's memory of bodies, until the response closes; null when it has closed. */
export type AnswerShare = Pick<ReturnType<FastifyInstance['openBodyShare']>, 'fits' | 'take'> | null

/**
 * The content of a completed task; none before. Media that cannot be read now, or do not fit into the share, are left out, with their link
 * kept.
 */
export type MediaContent = (task: Task, share: AnswerShare) => Promise<ContentBlock[]>

export function openMediaContent({ files, link, log }: Backends): MediaContent {
  /** Null when the file is not there, and while responses hold too much. */
  async function read(id: string, size: number, share: AnswerShare): Promise<Buffer | null> {
    if (!share?.fits(COPIES * size)) return null
    share.take(COPIES * size)
    const file = await files.get(id)
    return file && Buffer.concat(await file.stream.toArray())
  }

  async function contentOf(task: Task, result: TaskResult, share: AnswerShare): Promise<ContentBlock[]> {
    const { contentType: mimeType, bytes: size } = result
    const linked: ContentBlock = {
      type: 'resource_link',
      uri: link(result),
      name: result.file,
      title: `${task.kind} of task ${task.id}`,
      mimeType,
      size,
    }
    const type = CONTENT_TYPES[mimeType]
    if (!type || size > CONTENT_BYTES_MAX) return [linked]
    const data = await read(result.file, size, share).catch((err: unknown) => {
      log.warn({ event: 'mcp_media_unavailable', err, ...taskLogFields(task) }, 'media not read for MCP content')
      return null
    })
    return data ? [{ type, data: data.toString('base64'), mimeType }, linked] : [linked]
  }

  return async (task, share) => {
    if (task.state !== 'completed' || task.outcome?.outcome !== 'completed') return []
    const { result } = task.outcome
    const contents: ContentBlock[] = []
    for (const one of resultsOf(result)) contents.push(...(await contentOf(task, one, share)))
    return contents
  }
}
