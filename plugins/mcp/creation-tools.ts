/** The MCP tools that create paid tasks: one for each kind of generation, and one for each operation. */
import type { ToolAnnotations } from '@modelcontextprotocol/server'
import { Type } from 'typebox'
import { FIELD_PATTERNS } from '../../src/domain/field-patterns.ts'
import { GENERATION_FIELDS, type Kind } from '../../src/domain/media-generations.ts'
import { OPERATION_DEFINITIONS, OPERATIONS } from '../../src/domain/media-operations.ts'
import type { TaskBody } from '../../src/tasks/quote.ts'
import { TASK_FIELDS } from '../../src/tasks/request-fields.ts'
import { submit, type SubmitContext } from '../../src/tasks/submit.ts'
import { closed, TaskAnswer, waitSeconds, type Tool } from './tool.ts'

const { prompt, size, aspect_ratio, duration_seconds, seed, output_format, n, quality, negative_prompt, image_url } = GENERATION_FIELDS

/** The fields of the REST body that apply to a kind. */
const KIND_FIELDS = {
  image: { prompt, size, aspect_ratio, seed, output_format, n, quality, negative_prompt },
  video: { prompt, size, aspect_ratio, duration_seconds, seed, output_format, quality, negative_prompt, image_url },
  music: { prompt, duration_seconds, seed, output_format },
} as const satisfies Record<Kind, Partial<typeof GENERATION_FIELDS>>

/** For every tool that creates, beside the fields of the REST body. */
const CALL_FIELDS = {
  ...TASK_FIELDS,
  idempotency_key: Type.Optional(
    Type.String({
      pattern: FIELD_PATTERNS.idempotencyKey.pattern,
      description: 'The same key with the same arguments is the same task: use one to repeat a call without paying twice.',
    }),
  ),
  wait_seconds: waitSeconds,
}

const COST =
  'Creates a paid task: its price is held at once, and charged only when it completes. The record has the id for get_task, and once completed the address of the result.'

type Texts = { name: string; title: string; description: string }

const TEXTS: Record<Kind, Texts> = {
  image: {
    name: 'generate_image',
    title: 'Generate an image',
    description:
      'Makes new images from a text prompt alone, one by default. To change an image that exists, use ai_edit, inpaint, background_remove or upscale.',
  },
  video: {
    name: 'generate_video',
    title: 'Generate a video',
    description:
      'Makes one new video clip from a text prompt, or from a prompt and the picture that it begins with. To cut or join videos that exist, use trim or merge.',
  },
  music: {
    name: 'generate_music',
    title: 'Generate music',
    description: 'Makes one new piece of music from a text prompt alone. To cut or join recordings that exist, use trim or merge.',
  },
}

const annotations: ToolAnnotations = { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: true }

/** The tools, each with the fields of its REST body. Their failures are those of the REST API. */
export function creationTools(tasks: SubmitContext): Tool[] {
  /** `chooses`: the members of the REST body that the tool stands for. */
  function tool({ name, title, description }: Texts, chooses: object, fields: Record<string, object>): Tool {
    return {
      name,
      title,
      description: `${description} ${COST}`,
      annotations,
      input: Type.Object({ ...fields, ...CALL_FIELDS }, closed),
      output: TaskAnswer,
      creates: true,
      async call({ wait_seconds: seconds, idempotency_key: key, ...body }, caller, requestId) {
        const { task } = await submit(tasks, caller, { ...chooses, ...body } as TaskBody, typeof key === 'string' ? key : null, requestId)
        return { task, waitSeconds: Number(seconds) }
      },
    }
  }

  return [
    ...(Object.keys(KIND_FIELDS) as Kind[]).map((kind) => tool(TEXTS[kind], { kind }, KIND_FIELDS[kind])),
    ...OPERATIONS.map((operation) => {
      const { title, description, fields } = OPERATION_DEFINITIONS[operation]
      return tool({ name: operation, title, description }, { operation }, fields)
    }),
  ]
}
