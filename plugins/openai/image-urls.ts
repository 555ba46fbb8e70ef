/**
 * http addresses of images and files in a conversation (IMAGE_URLS): vetted by the egress guard before an upstream fetches them, fetched by the
 * gateway, or refused. An upstream reaches what tenants must not: metadata services, its own network.
 */
import type { Egress } from '../../src/egress/egress.ts'
import { REFUSALS, type Refusal } from '../../src/egress/target-url.ts'
import { Failure } from '../../src/domain/errors.ts'
import type { Take } from '../../src/http/growing-buffer.ts'
import type { Address } from '../../src/upstream/policy/content-parts.ts'

/** Vets the addresses of one request, or puts the fetched data in their place, whose memory is taken as it arrives. Throws `invalid_request`, and what `take` throws. */
export type AddressVetting = (addresses: readonly Address[], take: Take | undefined) => Promise<void>

const MAX_ADDRESSES = 50
const VET_MS = 5_000
const FETCH_MS = 20_000
const MAX_FETCHED_BYTES = 8 * 1024 * 1024
const MEDIA_TYPES = { image: /^image\/(?:png|jpeg|webp|gif)$/, file: /^(?:application\/pdf|text\/[a-z0-9.+-]+|application\/json)$/ }

export function openAddressVetting(mode: 'vet' | 'fetch' | 'refuse', egress: Egress): AddressVetting {
  async function fetchInline({ url, param, kind, inline }: Address, take: Take, signal: AbortSignal): Promise<void> {
    const reply = await egress.request({
      url,
      method: 'GET',
      signal,
      deadlineMs: FETCH_MS,
      maxBytes: MAX_FETCHED_BYTES,
      over: 'fail',
      redirects: 3,
      take,
    })
    if (reply.outcome === 'refused') throw refused(param, REFUSALS[reply.reason])
    if (reply.outcome === 'failed' || reply.status !== 200) throw refused(param, 'The address could not be fetched.')
    const type =
      String(reply.headers['content-type'] ?? '')
        .split(';', 1)[0]
        ?.trim()
        .toLowerCase() ?? ''
    if (!MEDIA_TYPES[kind].test(type))
      throw refused(param, `The address does not lead to ${kind === 'image' ? 'a PNG, JPEG, WebP or GIF image' : 'a PDF or text file'}.`)
    // In place of the bytes: the text of the data, and its copy in the body for the upstream.
    take(2 * Math.ceil(reply.body.length / 3) * 4 - reply.body.length)
    inline(`data:${type};base64,${Buffer.from(reply.body.buffer).toString('base64')}`, fileName(url))
  }

  return async (addresses, take = () => {}) => {
    const [first] = addresses
    if (!first) return
    const excess = addresses[MAX_ADDRESSES]
    if (excess) throw refused(excess.param, `A request may have ${MAX_ADDRESSES} addresses. Send the data itself.`)
    if (mode === 'refuse') throw refused(first.param, 'Addresses are not offered. Send the data itself as a data: address.')
    if (mode === 'vet') {
      const signal = AbortSignal.timeout(VET_MS)
      await Promise.all(addresses.map(async ({ url, param }) => refuseUnless(await egress.vet(url, signal), param)))
      return
    }
    // One after the other, so that a request makes one call at a time.
    const signal = AbortSignal.timeout(FETCH_MS)
    for (const address of addresses) await fetchInline(address, take, signal)
  }
}

function refuseUnless(refusal: Refusal | 'dns' | null, param: string): void {
  if (refusal !== null) throw refused(param, refusal === 'dns' ? 'The host of the address cannot be resolved.' : REFUSALS[refusal])
}

function refused(param: string, sentence: string): Failure {
  return new Failure('invalid_request', { param, message: `${param}: ${sentence}` })
}

/** The last step of the path, for the name of an inlined file. */
function fileName(url: string): string {
  return (
    URL.parse(url)
      ?.pathname.split('/')
      .at(-1)
      ?.replaceAll(/[^A-Za-z0-9._-]/g, '_')
      .slice(0, 100) || 'file'
  )
}
