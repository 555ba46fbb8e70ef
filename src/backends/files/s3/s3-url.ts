/**
 * Parser of `FILES_URL=s3://<bucket>[/<prefix>]`, with the parameters
 * - `endpoint`: the server's URL, for anything but AWS; `https://s3.<region>.amazonaws.com` by default
 * - `region`: `us-east-1` by default
 * - `pathStyle`: `true` puts the bucket into the path, `false` into the host name; `true` by default when an endpoint is given
 * - `accessKeyIdFile`, `secretAccessKeyFile`, `sessionTokenFile`: files with the credentials, such as those of a mounted Secret
 */
export type S3Address = {
  bucket: string
  region: string
  /** Base URL of the keys, prefix included, with a trailing slash. */
  base: string
  /** URL of the bucket itself. */
  bucketUrl: string
  /** Prefix of our keys in the bucket: empty, or with a trailing slash. */
  prefix: string
  credentialFiles: { accessKeyId: string; secretAccessKey: string; sessionToken: string | null } | null
}

const PARAMETERS = ['endpoint', 'region', 'pathStyle', 'accessKeyIdFile', 'secretAccessKeyFile', 'sessionTokenFile']

/** Parses the address. Throws an Error with one sentence about an invalid part. */
export function readAddress(text: string): S3Address {
  const url = URL.parse(text)
  if (!url || url.protocol !== 's3:') throw new Error('FILES_URL is not a URL: it must be s3://<bucket>[/<prefix>]?endpoint=…&region=….')
  if (url.username || url.password)
    throw new Error(
      'FILES_URL holds credentials: name their files by accessKeyIdFile and secretAccessKeyFile, or give them in the environment.',
    )
  const unknown = [...url.searchParams.keys()].find((name) => !PARAMETERS.includes(name))
  if (unknown !== undefined) throw new Error(`FILES_URL has the unknown parameter "${unknown}": it may have ${PARAMETERS.join(', ')}.`)
  const bucket = url.hostname
  if (!/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/.test(bucket))
    throw new Error(`FILES_URL names the bucket "${bucket}": a bucket's name has 3 to 63 lower-case letters, digits, dots and hyphens.`)
  const segments = url.pathname.split('/').filter((segment) => segment !== '')
  if (!segments.every((segment) => /^[A-Za-z0-9_-][A-Za-z0-9._-]*$/.test(segment))) {
    throw new Error('FILES_URL has a prefix that cannot be used: its parts may have letters, digits, dots, underscores and hyphens.')
  }
  const prefix = segments.map((segment) => `${segment}/`).join('')
  const region = url.searchParams.get('region') || 'us-east-1'
  const bucketUrl = bucketUrlOf(bucket, region, url.searchParams)
  return { bucket, region, prefix, bucketUrl, base: `${bucketUrl}/${prefix}`, credentialFiles: credentialFilesOf(url.searchParams) }
}

function bucketUrlOf(bucket: string, region: string, parameters: URLSearchParams): string {
  const given = parameters.get('endpoint')
  const endpoint = URL.parse(given ?? `https://s3.${region}.amazonaws.com`)
  if (!endpoint || !/^https?:$/.test(endpoint.protocol) || endpoint.search || endpoint.hash || endpoint.username) {
    throw new Error(`FILES_URL has the endpoint "${given}": it must be a URL such as https://storage.example.com.`)
  }
  const pathStyle = parameters.get('pathStyle') ?? String(given !== null)
  if (!['true', 'false'].includes(pathStyle)) throw new Error(`FILES_URL has pathStyle=${pathStyle}: it must be true or false.`)
  const path = endpoint.pathname.replace(/\/+$/, '')
  return pathStyle === 'true' ? `${endpoint.origin}${path}/${bucket}` : `${endpoint.protocol}//${bucket}.${endpoint.host}${path}`
}

function credentialFilesOf(parameters: URLSearchParams): S3Address['credentialFiles'] {
  const [accessKeyId, secretAccessKey, sessionToken] = ['accessKeyIdFile', 'secretAccessKeyFile', 'sessionTokenFile'].map(
    (name) => parameters.get(name) || null,
  )
  if (!accessKeyId && !secretAccessKey && !sessionToken) return null
  if (!accessKeyId || !secretAccessKey)
    throw new Error('FILES_URL names only a part of the credentials: accessKeyIdFile and secretAccessKeyFile belong together.')
  return { accessKeyId, secretAccessKey, sessionToken: sessionToken ?? null }
}
