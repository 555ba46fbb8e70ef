/** The MCP tool that takes files: an address for them, because they do not fit into the arguments of a model. */
import { Type } from 'typebox'
import { inactiveReason, planInactive } from '../../src/domain/subscription/subscription.ts'
import { uploadOwner, type Uploads } from '../../src/tasks/receive-upload.ts'
import type { SubmitContext } from '../../src/tasks/submit.ts'
import { closed, type Tool } from './tool.ts'

const UploadAddress = Type.Object({
  upload_url: Type.String({ description: 'Accepts files by PUT until expires_at. Anyone who has it may send files.' }),
  expires_at: Type.String({ format: 'date-time' }),
  max_bytes: Type.Integer({ description: 'Bytes that one file may have.' }),
  command: Type.String({ description: 'Sends a file. The answer is JSON with its media_url.' }),
})

/** The tool `create_upload`. Throws `plan_inactive`, and what `POST /uploads` throws is the answer of the address. */
export function uploadTool({ store, clock }: Pick<SubmitContext, 'store' | 'clock'>, uploads: Uploads): Tool {
  return {
    name: 'create_upload',
    title: 'Upload a local file',
    description:
      'Returns an address to which to send a local image, video or audio file, for example with curl -T. Its JSON answer has the media_url for the tools that edit media. A file that has a public address needs no upload.',
    annotations: { readOnlyHint: false, destructiveHint: false, idempotentHint: false, openWorldHint: false },
    input: Type.Object({}, closed),
    output: UploadAddress,
    creates: false,
    async call(_args, { key }) {
      const reason = inactiveReason(await store.subscription(key.subscription), clock())
      if (reason) throw planInactive(reason)
      const { url, expiresAt } = uploads.link(uploadOwner(key.tenant))
      return {
        record: {
          upload_url: url,
          expires_at: new Date(expiresAt).toISOString(),
          max_bytes: uploads.limits.bytes,
          command: `curl -T FILE '${url}'`,
        },
      }
    },
  }
}
