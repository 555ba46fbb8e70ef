/** Protection against cross-site request forgery: a header that only same-origin script can set, and what browsers say about the origin of a request. */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { isLoopback } from '../../src/config/setting-types.ts'
import { Failure } from '../../src/domain/errors.ts'

const SAFE = ['GET', 'HEAD']

/** Throws `csrf` unless the request reads only, or comes from a page of the dashboard. */
export function refuseForgedRequests(app: FastifyInstance, { method, headers }: FastifyRequest): void {
  if (SAFE.includes(method)) return
  const { origin } = headers
  const site = headers['sec-fetch-site']
  if (headers['x-tollgate-csrf'] !== '1') throw new Failure('csrf')
  if (site !== undefined && site !== 'same-origin') throw new Failure('csrf')
  if (origin !== undefined && !isOwnOrigin(origin, app.publicUrl(), headers.host)) throw new Failure('csrf')
}

/** A loopback listener has several names: there the page's origin is also the one to which the request was sent. */
function isOwnOrigin(origin: string, publicUrl: string, host: string | undefined): boolean {
  return origin === publicUrl || (isLoopback(new URL(publicUrl).hostname) && origin === `http://${host}`)
}
