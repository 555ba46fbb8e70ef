/** S3 client: requests signed by Signature Version 4 (payload included), with a deadline and retries of temporary failures. */
import { createHash } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { Readable } from 'node:stream'
import { setTimeout } from 'node:timers/promises'
import { AwsV4Signer } from 'aws4fetch'
import { Agent, request as send } from 'undici'
import { Unavailable } from '../../../domain/errors.ts'
import { readAtMost } from '../../../http/bounded-body.ts'
import type { Credentials } from '../files.ts'
import type { S3Address } from './s3-url.ts'

export type S3Request = {
  method: 'GET' | 'HEAD' | 'PUT' | 'POST' | 'DELETE'
  /** Relative to the prefix; without it the request is to the bucket. */
  key?: string
  query?: Record<string, string>
  headers?: Record<string, string>
  body?: Uint8Array
  /** Handling of the answer's body: return the stream, read it as XML, or ignore it, which is the default. */
  answer?: 'stream' | 'xml'
}

/** An error response of S3. `code` is its error code, such as `NoSuchKey`; empty without one, as for HEAD. */
export type Refused = { outcome: 'refused'; status: number; code: string; message: string; text: string }
export type Answered = { outcome: 'answered'; status: number; headers: Record<string, string>; text: string; body: Readable | null }

export type S3Client = {
  /** Returns S3's final answer. Throws `Unavailable` when there is none in time. */
  call(request: S3Request, attempts?: number): Promise<Answered | Refused>
  /** The same for requests that must succeed: throws `Unavailable` for an error response. */
  demand(request: S3Request): Promise<Answered>
  close(): Promise<void>
}

const ATTEMPTS = 4
const PAUSE_MS = 100
/** No retry starts after this time. */
const PATIENCE_MS = 10_000
const TIMEOUTS = { connect: { timeout: 3_000 }, headersTimeout: 10_000, bodyTimeout: 30_000 }
/** Sent at once: the time for an answer begins again with each slice that is sent, so that a slow line has time for all of them. */
const SLICE_BYTES = 64 * 1024
/** A full page of a list has about half that size. */
const XML_MAX = 2 * 1024 * 1024

/** `credentialsNow` is called before each request, so that credentials can change while the program runs. */
export function makeClient(address: S3Address, credentialsNow: () => Promise<Credentials>): S3Client {
  const agent = new Agent({ ...TIMEOUTS, allowH2: false })
  const signingKeys = new Map<string, ArrayBuffer>()
  let closed = false

  async function once({ method, key, query = {}, headers = {}, body, answer }: S3Request): Promise<Answered | Refused> {
    const url = new URL(key === undefined ? address.bucketUrl : `${address.base}${key}`)
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value)
    if (signingKeys.size > 8) signingKeys.clear()
    const hash = createHash('sha256')
      .update(body ?? '')
      .digest('hex')
    const signer = new AwsV4Signer({
      ...(await credentialsNow()),
      method,
      url: url.href,
      headers: { ...headers, 'x-amz-content-sha256': hash },
      region: address.region,
      service: 's3',
      cache: signingKeys,
    })
    const signed = await signer.sign()
    const response = await send(signed.url.href, {
      method,
      headers: { ...Object.fromEntries(signed.headers), ...(body && { 'content-length': String(body.length) }) },
      body: body ? Readable.from(slices(body), { objectMode: false }) : null,
      dispatcher: agent,
    })
    const { statusCode: status, body: stream } = response
    const facts = Object.fromEntries(Object.entries(response.headers).map(([name, value]) => [name, String(value)]))
    if (status < 300 && answer === 'stream') return { outcome: 'answered', status, headers: facts, text: '', body: stream }
    const text = (await readAtMost(stream, XML_MAX))?.toString()
    if (text === undefined) throw new Error('the answer of S3 exceeds the size limit')
    // S3 answers long operations with 200 before their outcome is known.
    const failed = status >= 300 || (answer === 'xml' && text.includes('<Error>'))
    if (!failed) return { outcome: 'answered', status, headers: facts, text, body: null }
    return { outcome: 'refused', status: status < 300 ? 500 : status, code: element(text, 'Code'), message: element(text, 'Message'), text }
  }

  async function call(request: S3Request, attempts = ATTEMPTS): Promise<Answered | Refused> {
    const startedAt = performance.now()
    for (let attempt = 1; ; attempt++) {
      if (closed) throw new Unavailable('files', new Error('closed'))
      const reply = await once(request).catch((error: unknown) => new Unavailable('files', error))
      if (!(reply instanceof Unavailable) && !(reply.outcome === 'refused' && isTemporary(reply))) return reply
      const failure = reply instanceof Unavailable ? reply : new Unavailable('files', errorOf(request, reply))
      if (attempt >= attempts || performance.now() - startedAt > PATIENCE_MS) throw failure
      await setTimeout(PAUSE_MS * 3 ** (attempt - 1))
    }
  }

  return {
    call,
    async demand(request) {
      const reply = await call(request)
      if (reply.outcome === 'refused') throw new Unavailable('files', errorOf(request, reply))
      return reply
    },
    async close() {
      closed = true
      await agent.destroy()
    },
  }
}

function* slices(body: Uint8Array): Generator<Uint8Array> {
  for (let at = 0; at < body.length; at += SLICE_BYTES) yield body.subarray(at, at + SLICE_BYTES)
}

/** An error response of S3 as an Error for the log. */
export function errorOf({ method }: S3Request, { status, code, message }: Refused): Error {
  return new Error(`S3 answered ${method} with ${status}${code && ` ${code}`}${message && `: ${message}`}`)
}

function isTemporary({ status, code }: Refused): boolean {
  return (status >= 500 && status !== 501) || status === 429 || code === 'RequestTimeout' || code === 'OperationAborted'
}

/** The text of the first element with this name, or an empty string. S3's answers are flat, so they need no XML parser. */
export function element(xml: string, name: string): string {
  return elements(xml, name)[0] ?? ''
}

/** The contents of all elements with this name. */
export function elements(xml: string, name: string): string[] {
  return Array.from(xml.matchAll(new RegExp(`<${name}>(.*?)</${name}>`, 'gs')), ([, content = '']) => unescaped(content))
}

const ENTITIES: Record<string, string> = { lt: '<', gt: '>', quot: '"', apos: "'", amp: '&', '#34': '"', '#39': "'", '#x22': '"' }

function unescaped(content: string): string {
  return content.replace(/&(\w+|#\w+);/g, (entity, name: string) => ENTITIES[name] ?? entity)
}

/** The credentials; files are read again each time. Throws an Error with one sentence when there are none. */
export function credentialsOf({ credentialFiles }: S3Address, given: Credentials | undefined): () => Promise<Credentials> {
  if (credentialFiles) {
    const { accessKeyId, secretAccessKey, sessionToken } = credentialFiles
    return async () => ({
      accessKeyId: await readSecret(accessKeyId),
      secretAccessKey: await readSecret(secretAccessKey),
      ...(sessionToken === null ? {} : { sessionToken: await readSecret(sessionToken) }),
    })
  }
  if (!given)
    throw new Error(
      'FILES_URL is an s3: address without credentials: name their files by accessKeyIdFile and secretAccessKeyFile, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.',
    )
  return async () => given
}

async function readSecret(file: string): Promise<string> {
  const text = await readFile(file, 'utf8').then(
    (text) => text.trim(),
    (error: NodeJS.ErrnoException) => error,
  )
  if (typeof text === 'string' && text !== '') return text
  throw new Error(
    `FILES_URL names the file ${file} for its credentials, which ${text === '' ? 'is empty' : `cannot be read (${text.code})`}.`,
  )
}
