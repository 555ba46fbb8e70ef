/** Errors of the API: `error` of its answers and of its failed jobs. Pure. */
import type { Complaint } from '../provider/failure.ts'

const REFUSED = /moderation|content_policy|content_filter|safety/
const EXHAUSTED = /insufficient_quota|billing|credit_balance|spend_limit|usage_limit_exceeded/
const TOO_LARGE = /^(image_too_large|image_file_too_large)$/
const UNREADABLE =
  /^(invalid_image(_format|_mode|_file)?|invalid_base64_image|image_too_small|image_parse_error|unsupported_image_media_type|empty_image_file)$/

/** Classifies `{error: {code, type, message}}`; anything else is no complaint. */
export function complaintOf(body: unknown): Complaint {
  const { error } = (body ?? {}) as { error?: { code?: unknown; type?: unknown; message?: unknown } | null }
  const [code, type, message] = [error?.code, error?.type, error?.message].map((value) => (typeof value === 'string' ? value : ''))
  const text = [code, type, message].filter((word) => word).join(', ')
  const names = `${code} ${type}`
  if (REFUSED.test(names)) return { text, fault: 'refused' }
  if (EXHAUSTED.test(names)) return { text, fault: 'exhausted' }
  if (TOO_LARGE.test(code ?? '')) return { text, fault: 'input_too_large' }
  return { text, fault: UNREADABLE.test(code ?? '') ? 'unsupported_input' : null }
}
