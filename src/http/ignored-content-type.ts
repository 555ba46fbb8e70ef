import type { IncomingMessage } from 'node:http'

/** An `onRequest` hook for uploads: their content decides what they are, so a Content-Type that is empty or malformed is not refused. */
export function ignoreContentType({ raw }: { raw: IncomingMessage }, _reply: unknown, done: () => void): void {
  delete raw.headers['content-type']
  done()
}
