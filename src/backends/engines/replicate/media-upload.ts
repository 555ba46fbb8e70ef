/** Uploads of inputs: small ones within the request as data URLs, larger ones through the files API, as the vendor documents. */
import type { NotMade, Input } from '../engine.ts'
import type { Api } from '../provider/api-requests.ts'
import { failureOf, isGood } from '../provider/failure.ts'
import { bytesOf } from '../provider/mask.ts'
import { multipart } from '../provider/multipart.ts'
import { complaintOf } from './predictions.ts'

const DATA_URL_BYTES = 256 * 1024

/** The address of an input, or why there is none. A large one is streamed and never held as a whole. */
export async function urlOf(api: Api, input: Input, signal: AbortSignal): Promise<string | NotMade> {
  const { contentType, bytes } = input
  if (bytes <= DATA_URL_BYTES) return `data:${contentType};base64,${(await bytesOf(input)).toString('base64')}`
  const extension = contentType.replace(/^.*\//, '').replace(/[^a-z0-9].*$/, '')
  const body = multipart([{ name: 'content', filename: `input.${extension}`, contentType, bytes, stream: () => input.read() }])
  const answer = await api.send({ method: 'POST', path: '/files', body, signal })
  const urls = isGood(answer) ? (answer.body['urls'] as { get?: unknown } | null | undefined) : undefined
  return typeof urls?.get === 'string' ? urls.get : failureOf('POST /files', answer, complaintOf)
}
