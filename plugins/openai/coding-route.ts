/** Joins a coding request on Fastify to its exchange (`src/upstream/exchange`): reads it for admission, and hands it over once it is admitted. */
import type { IncomingHttpHeaders, OutgoingHttpHeaders } from 'node:http'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { overLimit } from '../../src/domain/errors.ts'
import { onceClosed } from '../../src/http/disconnect.ts'
import type { Client } from '../../src/upstream/exchange/answer-writer.ts'
import { Exchange, type ExchangeOptions } from '../../src/upstream/exchange/exchange.ts'
import type { ReadRequest } from '../../src/upstream/exchange/read-request.ts'
import type { Admission, OpenReservation } from '../../src/upstream/usage/reservation.ts'
import type { Upstreams } from '../../src/upstream/upstreams.ts'
import type { Ids } from '../../src/upstream/wires/encrypted-ids.ts'
import type { CodingRequest, WireName } from '../../src/upstream/wires/wire.ts'
import type { AddressVetting } from './image-urls.ts'

declare module 'fastify' {
  interface FastifyRequest {
    /** The valid request, from its reading to its dispatch. Null on other routes. */
    read: ReadRequest | null
  }
}

export type CodingRouteOptions = ExchangeOptions & {
  upstreams: Upstreams
  ids: (subscription: string) => Ids
  vetAddresses: AddressVetting
}

type Reader = (body: unknown, headers: IncomingHttpHeaders, allowed: ReadonlySet<string>) => ReadRequest

/** `admits` of a route: reads the request, whose faults are told before it is admitted. */
export function readsBy(reader: Reader, upstreams: Upstreams): (request: FastifyRequest) => Admission {
  return (request) => {
    const read = reader(request.body, request.headers, upstreams.allowed())
    request.read = read
    return { promptBytes: read.promptBytes, maxOutputTokens: read.request.maxOutputTokens }
  }
}

/** The handler of a route of this wire. */
export function exchangeFor(
  wire: WireName,
  options: CodingRouteOptions,
): (request: FastifyRequest, reply: FastifyReply) => void | Promise<FastifyReply> {
  function exchange(read: ReadRequest, reservation: OpenReservation, request: FastifyRequest, reply: FastifyReply): void {
    // A stream lasts for minutes: the body is released before it.
    request.read = null
    request.body = null
    const { stream } = read.request
    const ids = options.ids(request.caller?.key.subscription ?? '')
    const { promptBytes } = read
    const { startedMs, log, id: requestId } = request
    new Exchange(
      { wire, stream, promptBytes, ids, reservation, client: clientOf(request, reply, read.request), startedMs, requestId, log },
      options,
    ).send(read.request)
  }

  return (request, reply) => {
    const { read, reservation } = request
    if (!read || !reservation) throw new Error('the route was reached without admission')
    const { addresses, choices, maxOutputTokens } = read.request
    const more = choices > 1 && maxOutputTokens === null
    // An ordinary request has neither, and reaches the upstream without a turn of the promise queue.
    if (addresses.length === 0 && !more) return exchange(read, reservation, request, reply)
    return prepare(read.request, more, request, reservation, options.vetAddresses).then(() => {
      exchange(read, reservation, request, reply)
      return reply
    })
  }
}

function clientOf(request: FastifyRequest, reply: FastifyReply, { repeatsInput = false }: CodingRequest): Client {
  const share = request.bodyShare
  // With onAbort: Drain the exchange holds the request after its client has left.
  if (share) reply.raw.off('close', share.free)
  return {
    raw: reply.raw,
    takeOver: () => reply.hijack().getHeaders() as OutgoingHttpHeaders,
    refuse(error) {
      if (!reply.sent) reply.send(error)
    },
    failed({ code }) {
      request.failed = { code, limit: null }
    },
    release: () => (repeatsInput ? undefined : share?.free()),
    ended: () => share && onceClosed(reply.raw, share.free),
  }
}

async function prepare(
  { addresses, choices }: CodingRequest,
  more: boolean,
  request: FastifyRequest,
  { admitted, ensure }: OpenReservation,
  vet: AddressVetting,
): Promise<void> {
  await vet(addresses, request.bodyShare?.take)
  // Admission reserves one choice when the client sets no limit of tokens.
  if (more && (await ensure(admitted.reserved * choices)) === 'gone') throw overLimit('reservation', { retryAfterSeconds: 2 })
}
