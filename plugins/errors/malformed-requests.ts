/**
 * Failures before routing: bytes that are no HTTP request, tunnels, undecodable paths. The API is not known yet, so the body serves both:
 * OpenAI's `error` and the members of RFC 9457.
 */
import { randomUUID } from 'node:crypto'
import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import { Failure, type FaultCode } from '../../src/domain/errors.ts'
import { bodyOf, PROBLEM } from './error-body.ts'

/** Not imported: an import reads all members of the module, and so loads the whole library of `fetch`, 6 MB. */
const { STATUS_CODES } = process.getBuiltinModule('node:http')

const CODES: Record<string, FaultCode> = {
  HPE_HEADER_OVERFLOW: 'header_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** Answers bytes that Node's HTTP parser refused, and closes the connection: the bytes that follow cannot be trusted to be a request. */
export function answerUnparsable(error: Error & { code?: string }, socket: Duplex): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const known = CODES[error.code ?? '']
  write(
    socket,
    known ? new Failure(known) : new Failure('invalid_request', { message: 'The bytes that were sent are not a valid HTTP request.' }),
  )
}

/** Answers a path that cannot be decoded, or one with a segment longer than any route takes. */
export function answerUnroutable(error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  const failure =
    error.code === 'FST_ERR_MAX_PARAM_LENGTH'
      ? new Failure('not_found')
      : new Failure('invalid_request', { message: 'The address of the request is not valid.' })
  void reply
    .code(failure.status)
    .headers({ 'content-type': PROBLEM, 'x-request-id': request.id })
    .send(JSON.stringify(bodyOf(failure, request.id, true)))
}

/**
 * Takes over what Node would answer by itself: `framingFault` checks the framing, a tunnel is refused here, and 100 (Continue) waits until
 * the body is read.
 */
export function takeOver(server: Server & { requireHostHeader?: boolean }): void {
  server.requireHostHeader = false
  server.on('checkExpectation', (request, response) => server.emit('request', request, response))
  server.on('checkContinue', (request, response) => {
    continueOnRead(request, response)
    server.emit('request', request, response)
  })
  server.on('connect', (_request, socket) => write(socket, new Failure('method_not_allowed', { headers: { allow: 'GET, HEAD, POST' } })))
}

/**
 * Sends 100 (Continue) when the body is first read, so that a request that is refused before gets its final answer alone (RFC 9110, section
 * 10.1.1). Node then closes the connection.
 */
function continueOnRead(request: IncomingMessage, response: ServerResponse): void {
  const read = request._read
  request._read = (size) => {
    request._read = read
    // After its answer, Node discards the rest of a request.
    if (!response.headersSent) response.writeContinue()
    read.call(request, size)
  }
}

/** The fault in the framing of a request, whatever its route; null when there is none. A body that is `streamed` may have any coding. */
export function framingFault({ headers, rawHeaders, httpVersionMinor }: IncomingMessage, streamed = false): Failure | null {
  if (httpVersionMinor > 0 && headers.host === undefined) return fault('The Host header is missing.')
  for (const name of SINGLE) if (isRepeated(rawHeaders, name)) return fault(`There is more than one ${name} header.`)
  if (headers.expect !== undefined && headers.expect.toLowerCase() !== '100-continue') return new Failure('expectation_failed')
  // A body in an unknown coding would be misread (RFC 9112, section 6.1; RFC 9110, section 8.4).
  if (headers['transfer-encoding'] !== undefined && headers['transfer-encoding'].toLowerCase() !== 'chunked') {
    return new Failure('unsupported_media_type', { message: 'Send the body without Transfer-Encoding, or chunked.', headers: CLOSE })
  }
  if (!streamed && (headers['content-encoding'] ?? 'identity') !== 'identity')
    return new Failure('unsupported_media_type', { message: 'Send the body without Content-Encoding.' })
  return null
}

const CLOSE = { connection: 'close' }
/** Node keeps the first of several, and a proxy may have checked another. */
const SINGLE = ['Host', 'Authorization']

function isRepeated(rawHeaders: readonly string[], header: string): boolean {
  const wanted = header.toLowerCase()
  let count = 0
  for (let i = 0; i < rawHeaders.length; i += 2) {
    const name = rawHeaders[i] ?? ''
    if (name.length === wanted.length && name.toLowerCase() === wanted) count++
  }
  return count > 1
}

/** An ambiguous host or key invites request smuggling through a proxy: the connection is closed (RFC 9112, section 3.2). */
function fault(message: string): Failure {
  return new Failure('invalid_request', { message, headers: CLOSE })
}

function write(socket: Duplex, failure: Failure): void {
  const id = randomUUID()
  const body = JSON.stringify(bodyOf(failure, id, true))
  const headers = {
    'content-type': PROBLEM,
    'content-length': Buffer.byteLength(body),
    'x-request-id': id,
    connection: 'close',
    date: new Date().toUTCString(),
    ...failure.facts.headers,
  }
  const head = [
    `HTTP/1.1 ${failure.status} ${STATUS_CODES[failure.status]}`,
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}
