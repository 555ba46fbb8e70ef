/** Videos: `videos`, a job that is polled, then its content. */
import type { GenerationRequest } from '../../../domain/media-generations.ts'
import { sourceLimits } from '../../../domain/media-operations.ts'
import { notMade, type Made, type NotMade, type Run } from '../engine.ts'
import type { Answer, Api } from '../provider/api-requests.ts'
import { failureOf, isGood, ProviderError } from '../provider/failure.ts'
import { failedPoll, runJob, type JobStatus } from '../provider/job.ts'
import { bytesOf, extensionOf, loadSharp, PICTURE_TYPES, pictureOf } from '../provider/mask.ts'
import { filePart, multipart, type Part } from '../provider/multipart.ts'
import type { Outside } from '../provider/environment.ts'
import { CANCEL_MS, POLL_MS } from '../provider/provided-engine.ts'
import { measured, type Results } from '../provider/result.ts'
import { complaintOf } from './error-codes.ts'

type Around = { api: Api; results: Results; outside: Outside; background(work: Promise<unknown>): void }

/** Makes a video, or resumes the job of an earlier run. An aborted run lets its job go on for the next one, unless the task is canceled or out of time. */
export async function film({ api, results, outside, background }: Around, request: GenerationRequest, run: Run): Promise<Made | NotMade> {
  const { model, limits, signal, idempotencyKey } = run
  const { width, height, durationMs } = request
  if (width === null || height === null || durationMs === null) return notMade('not_supported', false)
  const fields = {
    ...(model === null ? {} : { model }),
    prompt: request.prompt,
    seconds: String(durationMs / 1000),
    size: `${width}x${height}`,
  }
  const [first] = run.inputs
  const path = (id: string): string => `/videos/${encodeURIComponent(id)}`

  const job = await runJob<string>(
    {
      async start() {
        // As form data, which the vendor and the compatible servers take; some of them take nothing else.
        const picture = first && (await pictureOf(await bytesOf(first), PICTURE_TYPES, sourceLimits(request.kind, limits), loadSharp))
        if (picture && 'outcome' in picture) return picture
        signal.throwIfAborted()
        const parts: Part[] = Object.entries(fields).map(([name, value]) => ({ name, value }))
        const body = multipart(picture ? [...parts, filePart('input_reference', `image.${extensionOf(picture)}`, picture)] : parts)
        const answer = await api.send({
          method: 'POST',
          path: '/videos',
          body,
          signal: new AbortController().signal,
          firstByteMs: POLL_MS,
          headers: { 'idempotency-key': idempotencyKey },
        })
        const id = isGood(answer) ? answer.body['id'] : undefined
        if (!isGood(answer) || typeof id !== 'string' || id === '') return failureOf('POST /videos', answer, complaintOf)
        return { outcome: 'started', id, status: statusOf(answer.body, id) }
      },
      async poll(id) {
        const answer = await api.send({ method: 'GET', path: path(id), signal, firstByteMs: POLL_MS })
        return polled(answer, id)
      },
      // The API has no verb to cancel a video; deleting it stops it where the server does so.
      cancel: (id) => api.send({ method: 'DELETE', path: path(id), signal: AbortSignal.timeout(CANCEL_MS) }),
    },
    run,
    { ...outside, background },
  )
  if (job.outcome === 'failed') return job
  return measured(await results.save({ method: 'GET', path: `${path(job.value)}/content` }, run, complaintOf), request, limits)
}

function polled(answer: Answer, id: string): JobStatus<string> {
  return isGood(answer) && typeof answer.body['status'] === 'string'
    ? statusOf(answer.body, id)
    : failedPoll('GET /videos/{id}', answer, complaintOf)
}

function statusOf(video: Record<string, unknown>, id: string): JobStatus<string> {
  const { status, progress } = video
  if (status === 'completed') return { outcome: 'ended', value: id }
  if (status === 'failed' || status === 'cancelled') {
    const { text, fault } = complaintOf(video)
    const cause = new ProviderError(`the video is ${status}${text && `: ${text}`}`)
    return fault === 'refused' ? notMade('provider_rejected', false, cause) : notMade('provider_error', fault === null, cause)
  }
  return { outcome: 'running', percent: typeof progress === 'number' ? progress : null }
}
