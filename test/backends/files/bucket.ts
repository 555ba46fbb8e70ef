/** A private S3 bucket for a test, and its contents as another S3 client sees them. */
import { randomUUID } from 'node:crypto'
import { AwsClient } from 'aws4fetch'
import type { Test } from 'tap'
import { openFiles, type Files } from '../../../src/backends/files/files.ts'

export type Server = { url: string; accessKeyId: string; secretAccessKey: string }

export type Bucket = {
  name: string
  /** FILES_URL of this bucket, below `prefix`; through another server if `endpoint` names one. */
  address(prefix?: string, endpoint?: string): string
  open(prefix?: string, endpoint?: string): Promise<Files>
  request(path: string, init?: RequestInit): Promise<Response>
  /** All keys, in order; up to 1,000. */
  keys(prefix?: string): Promise<string[]>
  /** Keys of multipart uploads in progress. */
  uploads(): Promise<string[]>
}

const keysIn = (xml: string) => Array.from(xml.matchAll(/<Key>(.*?)<\/Key>/g), ([, key = '']) => key.replaceAll('&amp;', '&'))

/** Creates a bucket, which the end of the test removes with its contents. */
export async function makeBucket(t: Test, { url, accessKeyId, secretAccessKey }: Server): Promise<Bucket> {
  const name = `files-${randomUUID()}`
  const client = new AwsClient({ accessKeyId, secretAccessKey, service: 's3', region: 'us-east-1', retries: 0 })
  const request = (path: string, init: RequestInit = {}) => client.fetch(`${url}/${name}${path}`, init)
  const bucket: Bucket = {
    name,
    address: (prefix = '', endpoint = url) => `s3://${name}/${prefix}?endpoint=${encodeURIComponent(endpoint)}`,
    async open(prefix, endpoint) {
      const files = await openFiles(bucket.address(prefix, endpoint), { storeUrl: '', credentials: { accessKeyId, secretAccessKey } })
      t.teardown(() => files.close())
      return files
    },
    request,
    keys: async (prefix = '') => keysIn(await (await request(`?list-type=2&prefix=${prefix}`)).text()),
    uploads: async () => keysIn(await (await request('?uploads=')).text()),
  }
  const made = await request('', { method: 'PUT' })
  if (!made.ok) throw new Error(`no bucket: ${made.status} ${await made.text()}`)
  t.teardown(async () => {
    for (const key of await bucket.keys()) await request(`/${encodeURI(key)}`, { method: 'DELETE' })
    await request('', { method: 'DELETE' })
  })
  return bucket
}
