/** The addresses of sources in a body: what is refused at creation, and data: URLs (RFC 2397), which are uploads. Names are not resolved here. */
import type { FieldError } from '../domain/errors.ts'
import { isDataUrl, mediaSourcesOf, sourcesOf, type Sourced } from '../domain/media-operations.ts'

/** The content of a data: URL. */
export type Upload = { field: 'media_url' | 'mask_url' | 'image_url'; bytes: Uint8Array }

export type CheckedSources = {
  /** Every refused address, with its path. */
  errors: FieldError[]
  uploads: Upload[]
}

export type UrlChecks = {
  /** Why an address of a tenant is refused as it stands, in public words; null when it is allowed. */
  refusedUrl: (url: string) => string | null
  /** As in TaskContext. */
  linkedFile: (url: string) => string | null
}

/** Checks every source of a body. A link of ours is no address to be fetched: its signature decides, wherever it seems to lead. */
export function checkSources({ refusedUrl, linkedFile }: UrlChecks, body: Sourced): CheckedSources {
  const checked: CheckedSources = { errors: [], uploads: [] }
  const refuse = (path: string, message: string | null): void => {
    if (message !== null) checked.errors.push({ path, code: 'url_not_allowed', message })
  }
  for (const { path, from } of sourcesOf(body)) {
    if (typeof from !== 'string' || linkedFile(from) !== null) continue
    const field = path.slice(1)
    if (!isDataUrl(from)) refuse(path, refusedUrl(from))
    else if (field !== 'media_url' && field !== 'mask_url' && field !== 'image_url')
      refuse(
        path,
        'A data: URL is accepted as media_url or mask_url only, because a request has room for one source. Use an http or https address, or the link of a result or an upload.',
      )
    else {
      const bytes = dataOf(from)
      if (bytes) checked.uploads.push({ field, bytes })
      else refuse(path, 'A data: URL must be in base64, with padding and without spaces.')
    }
  }
  return checked
}

/** The addresses of the media of a body, without its mask, in their order; null for what is here: uploads, results and data: URLs. */
export function mediaElsewhere({ linkedFile }: Pick<UrlChecks, 'linkedFile'>, body: Sourced): (string | null)[] {
  return mediaSourcesOf(body).map(({ from }) => (typeof from === 'string' && !isDataUrl(from) && linkedFile(from) === null ? from : null))
}

/** The content of a data: URL in strict base64 (RFC 4648, section 4); null for anything else. */
function dataOf(url: string): Uint8Array | null {
  const [, text] = /^data:[^,]*;base64,([A-Za-z0-9+/]+={0,2})$/i.exec(url) ?? []
  if (text === undefined) return null
  const bytes = Buffer.from(text, 'base64')
  return bytes.toString('base64') === text ? bytes : null
}
