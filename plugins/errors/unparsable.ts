/** Failures that come before any route: bytes that are no HTTP request, and addresses that no router can read. */
import { randomUUID } from 'node:crypto'
import type { FastifyError, FastifyReply, FastifyRequest } from 'fastify'
import type { Socket } from 'node:net'
import { STATUS_CODES } from 'node:http'
import { Failure, type FailureCode } from '../../src/errors.ts'

const CODES: Record<string, FailureCode> = {
  HPE_HEADER_OVERFLOW: 'header_too_large',
  ERR_HTTP_REQUEST_TIMEOUT: 'request_timeout',
}

/** Answers a connection whose bytes Node's parser refused, and closes it: nothing after them can be trusted to be a request of its own. */
export function answerUnparsable(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const failure = new Failure(CODES[error.code ?? ''] ?? 'invalid_request', CODES[error.code ?? ''] ? {} : { message: 'The bytes that were sent are not a valid HTTP request.' })
  const body = bodyOf(failure)
  const head = [
    `HTTP/1.1 ${failure.status} ${STATUS_CODES[failure.status]}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    `x-request-id: ${randomUUID()}`,
    'connection: close',
  ]
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`)
}

/** Answers an address that cannot be decoded. */
export function answerUnroutable(_error: FastifyError, request: FastifyRequest, reply: FastifyReply): void {
  const failure = new Failure('invalid_request', { message: 'The address of the request is not valid.' })
  void reply.code(failure.status).headers({ 'content-type': 'application/json; charset=utf-8', 'x-request-id': request.id }).send(bodyOf(failure))
}

function bodyOf(failure: Failure): string {
  return JSON.stringify({ error: { message: failure.message, type: failure.type, code: failure.code, param: null } })
}
