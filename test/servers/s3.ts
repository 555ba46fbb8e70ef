import { mkdir } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import type { Test } from 'tap'
import { installed } from './client.ts'
import { accepts, freePort, start } from './process.ts'
import { serve, type Server } from './server.ts'
import { own, shared } from './shared.ts'

type S3 = { url: string; accessKeyId: string; secretAccessKey: string }

export const S3_NAMES = ['versitygw']

/** Starts versitygw, which serves a folder by the S3 API (path style, region us-east-1). The url has the credentials in it. */
export async function startS3(): Promise<Server & { url: string; version: string }> {
  const port = await freePort()
  const [accessKeyId, secretAccessKey] = ['test-access', 'test-secret']
  const env = { ROOT_ACCESS_KEY: accessKeyId, ROOT_SECRET_KEY: secretAccessKey }
  const server = await serve(
    async (folder) => void (await mkdir(join(folder, 'buckets'))),
    async (folder, running) => {
      const argv: [string, ...string[]] = [installed('versitygw'), '--port', `127.0.0.1:${port}`, '--quiet', 'posix', join(folder, 'buckets')]
      running.push(await start({ argv, env, ready: () => accepts(port) }))
    },
  )
  return { ...server, version: basename(dirname(installed('versitygw'))), url: `http://${accessKeyId}:${secretAccessKey}@127.0.0.1:${port}` }
}

function parsed(address: string): S3 {
  const { origin, username, password } = new URL(address)
  return { url: origin, accessKeyId: decodeURIComponent(username), secretAccessKey: decodeURIComponent(password) }
}

/** The shared S3 server (`S3_URL`, with the credentials as its user and password); null if the suite is skipped. */
export async function s3(t: Test): Promise<S3 | null> {
  const address = await shared(t, 'S3_URL', S3_NAMES, startS3)
  return address === null ? null : parsed(address)
}

/** A private server that the test may kill and freeze. */
export async function ownS3(t: Test): Promise<(Server & S3) | null> {
  const server = await own(t, S3_NAMES, startS3)
  return server && { ...server, ...parsed(server.url) }
}
