import dns from 'node:dns'
import { createSocket } from 'node:dgram'
import { once } from 'node:events'
import { getCACertificates, setDefaultCACertificates } from 'node:tls'
import t from 'tap'
import { parseAllow } from '../../src/egress/address-policy.ts'
import { type Ask, type EgressOptions, openEgress } from '../../src/egress/egress.ts'
import { openLookup } from '../../src/egress/dns-lookup.ts'
import { openReceiver } from '../fakes/receiver.ts'
import { certify } from './certificate.ts'

const post = { method: 'POST', body: '{}', deadlineMs: 60_000, maxBytes: 20_000, over: 'cut', redirects: 0 } as const satisfies Omit<Ask, 'url'>
const get = { method: 'GET', deadlineMs: 60_000, maxBytes: 20_000, over: 'fail', redirects: 3 } as const satisfies Omit<Ask, 'url'>
const open = (lookup: NonNullable<EgressOptions['lookup']>, allow = ['127.0.0.1/32']) => openEgress({ allow, lookup, clock: () => 0 })

/** A resolver that returns each answer once, and counts the queries. */
function answers(...list: string[][]) {
  const asked: string[] = []
  return { asked, lookup: async (name: string) => list[asked.push(name) - 1] ?? [] }
}

t.test('the connection goes to the checked address, whatever the name resolves to later', async (t) => {
  const receiver = await openReceiver(t)
  const resolver = answers(['127.0.0.1'], ['10.0.0.1'], ['127.0.0.1'])
  const egress = open(resolver.lookup)
  const url = `http://rebind.example:${receiver.port}/hook`
  t.match(await egress.request({ url, ...post }), { outcome: 'answered', status: 204 })
  t.match(await egress.request({ url, ...post }), { outcome: 'failed', reason: 'dns' })
  t.match(await egress.request({ url, ...post }), { outcome: 'answered', status: 204 })
  t.equal(resolver.asked.length, 3, 'a name is resolved once per request')
  t.same(receiver.received.map((request) => request.headers.host), Array(2).fill(`rebind.example:${receiver.port}`), 'Host stays the name')
})

t.test('a name with a trailing dot is the same name, for the receiver as well', async (t) => {
  const receiver = await openReceiver(t)
  const asked: string[] = []
  const egress = open(async (name) => (asked.push(name), ['127.0.0.1']))
  for (const dot of ['', '.']) t.match(await egress.request({ url: `http://hooks.example${dot}:${receiver.port}/`, ...post }), { outcome: 'answered' })
  t.same(asked, ['hooks.example', 'hooks.example'])
  t.same(receiver.received.map(({ headers }) => headers.host), Array(2).fill(`hooks.example:${receiver.port}`))
})

t.test('the HTTP client resolves nothing itself', async (t) => {
  const receiver = await openReceiver(t)
  const calls = t.capture(dns, 'lookup', dns.lookup)
  const promised = t.capture(dns.promises, 'lookup', dns.promises.lookup)
  const egress = open(async () => ['127.0.0.1'])
  t.match(await egress.request({ url: `http://pinned.example:${receiver.port}/`, ...post }), { outcome: 'answered' })
  t.match(await egress.request({ url: `http://0x7f.1:${receiver.port}/`, ...post }), { outcome: 'answered' })
  t.match(await egress.request({ url: `http://localhost:${receiver.port}/`, ...post }), { outcome: 'answered' })
  t.same([calls(), promised()], [[], []])
})

t.test('the next checked address is tried when one does not answer', async (t) => {
  const receiver = await openReceiver(t)
  const egress = open(async () => ['127.0.0.2', '127.0.0.1'], ['127.0.0.0/8'])
  t.match(await egress.request({ url: `http://two.example:${receiver.port}/`, ...post }), { outcome: 'answered', status: 204 })
})

t.test('DNS rebinding fails', async (t) => {
  const receiver = await openReceiver(t)
  const server = await openNameServer(['127.0.0.1', '127.0.0.2', '127.0.0.1'])
  t.teardown(server.close)
  const egress = open(openLookup(parseAllow([]), { servers: [server.address] }))
  const url = `http://rebind.example:${receiver.port}/`
  t.match(await egress.request({ url, ...post }), { outcome: 'answered' })
  t.match(await egress.request({ url, ...post }), { outcome: 'failed', reason: 'dns' })
  t.match(await egress.request({ url, ...post }), { outcome: 'answered' })
  t.equal(receiver.received.length, 2)
  t.match(await egress.request({ url, ...post }), { outcome: 'failed', reason: 'dns' }, 'a name without addresses')
})

t.test('an unresponsive name server takes no longer than the deadline', async (t) => {
  const server = await openNameServer(null)
  t.teardown(server.close)
  const egress = open(openLookup(parseAllow([]), { servers: [server.address] }))
  t.match(await egress.request({ url: 'http://slow.example/', ...post, deadlineMs: 50 }), { outcome: 'failed', reason: 'timeout' })
})

t.test('a name in EGRESS_ALLOW is resolved by the system', async (t) => {
  const found = await openLookup(parseAllow(['localhost']), { servers: ['127.0.0.1:1'] })('localhost', new AbortController().signal)
  t.ok(found.includes('127.0.0.1') || found.includes('::1'))
})

t.test('a proxy of the environment is not used', async (t) => {
  const [receiver, proxy] = [await openReceiver(t), await openReceiver(t)]
  const names = ['HTTP_PROXY', 'http_proxy', 'HTTPS_PROXY', 'ALL_PROXY']
  t.intercept(process, 'env', { value: { ...process.env, ...Object.fromEntries(names.map((name) => [name, proxy.url])), NO_PROXY: '', NODE_USE_ENV_PROXY: '1' } })
  t.match(await open(async () => []).request({ url: `${receiver.url}/`, ...post }), { outcome: 'answered' })
  t.equal(proxy.received.length, 0)
  t.equal(receiver.received.length, 1)
})

t.test('a webhook follows no redirect', async (t) => {
  const receiver = await openReceiver(t)
  for (const status of [301, 302, 303, 307, 308]) {
    receiver.next({ redirect: `${receiver.url}/other`, status })
    t.match(await open(async () => []).request({ url: `${receiver.url}/hook`, ...post }), { outcome: 'answered', status })
    receiver.next({ redirect: `${receiver.url}/other`, status })
    t.match(await open(async () => []).request({ url: `${receiver.url}/hook`, ...post, redirects: 5 }), { outcome: 'answered', status }, 'a POST never does')
  }
  t.ok(receiver.received.every((request) => request.path === '/hook'))
})

t.test('each redirect of a download is checked like the first address', async (t) => {
  const receiver = await openReceiver(t)
  const egress = open(async (name) => (name === 'inward.example' ? ['169.254.169.254'] : ['127.0.0.1']))
  const inward: [location: string, reason: string][] = [
    ['http://169.254.169.254/latest/meta-data/', 'address_not_allowed'], ['http://0xa9fea9fe/', 'address_not_allowed'], ['http://[::1]/', 'address_not_allowed'],
    ['//10.0.0.1/', 'address_not_allowed'], ['file:///etc/passwd', 'scheme_not_allowed'],
    [`http://user:pass@127.0.0.1:${receiver.port}/`, 'userinfo_not_allowed'], ['http://out.example:22/', 'port_not_allowed'],
  ]
  for (const [location, reason] of inward) {
    receiver.next({ redirect: location })
    t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'refused', reason }, location)
  }
  receiver.next({ redirect: 'http://inward.example/' })
  t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'failed', reason: 'dns' }, 'a name, as if it had no address')
  receiver.next({ redirect: '/next' }, { redirect: `http://out.example:${receiver.port}/last` }, { status: 200, body: 'media' })
  const reply = await egress.request({ url: `${receiver.url}/first`, ...get, headers: { authorization: 'secret', range: 'bytes=0-9' } })
  t.equal(reply.outcome === 'answered' && Buffer.from(reply.body).toString(), 'media')
  const last = receiver.received.slice(-3)
  t.same(last.map(({ path, headers }) => [path, headers.authorization, headers.range]), [['/first', 'secret', 'bytes=0-9'], ['/next', 'secret', 'bytes=0-9'], ['/last', undefined, 'bytes=0-9']], 'headers stay with their origin, but for what is requested of the file')
})

t.test('redirects end at their limit, or at an invalid Location', async (t) => {
  const receiver = await openReceiver(t)
  receiver.always(() => ({ redirect: '/again' }))
  const egress = open(async () => [])
  t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'failed', reason: 'too_many_redirects', status: 302 })
  t.equal(receiver.received.length, 4)
  receiver.next({ redirect: 'http://' }, { status: 302 })
  t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'answered', status: 302 })
  t.match(await egress.request({ url: `${receiver.url}/`, ...get }), { outcome: 'answered', status: 302 })
})

t.test('the certificate is verified against the name, not the address: names, validity and trust', async (t) => {
  const now = new Date()
  const good = certify(['hooks.example', '127.0.0.1'], new Date(now.getTime() - 86_400_000))
  const expired = certify(['hooks.example'], new Date('2001-01-01'))
  const receiver = await openReceiver(t, { tls: good })
  const old = await openReceiver(t, { tls: expired })
  const plain = await openReceiver(t)
  const egress = open(async () => ['127.0.0.1'])
  const to = (host: string, port: number) => egress.request({ url: `https://${host}:${port}/`, ...post })
  const refused = { outcome: 'failed', reason: 'tls', status: null }

  t.match(await to('hooks.example', receiver.port), refused, 'self-signed')
  t.intercept(process, 'env', { value: { ...process.env, NODE_TLS_REJECT_UNAUTHORIZED: '0' } })
  t.match(await to('hooks.example', receiver.port), refused, 'self-signed, with verification switched off in the environment')
  const before = getCACertificates('default')
  t.teardown(() => setDefaultCACertificates(before))
  setDefaultCACertificates([...before, good.cert, expired.cert])
  t.match(await to('hooks.example', receiver.port), { outcome: 'answered', status: 204 }, 'trusted')
  t.match(await to('hooks.example.', receiver.port), { outcome: 'answered', status: 204 }, 'trusted, with a trailing dot')
  t.match(await to('127.0.0.1', receiver.port), { outcome: 'answered', status: 204 }, 'trusted, by its address')
  t.match(await to('other.example', receiver.port), refused, 'another name')
  t.match(await to('hooks.example', old.port), refused, 'expired')
  t.match(await to('hooks.example', plain.port), refused, 'no TLS')
  t.equal(receiver.received.length, 3)
})

/** A DNS server on loopback: answers A with one address after the other, AAAA with none; null never answers. */
async function openNameServer(list: string[] | null) {
  const socket = createSocket('udp4')
  const left = [...(list ?? [])]
  socket.on('message', (query, from) => {
    if (list === null) return
    const end = query.indexOf(0, 12) + 5
    const address = query.readUInt16BE(end - 4) === 1 ? left.shift() : undefined
    const header = Buffer.from([query[0] ?? 0, query[1] ?? 0, 0x81, 0x80, 0, 1, 0, address ? 1 : 0, 0, 0, 0, 0])
    const record = address ? Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ...address.split('.').map(Number)]) : Buffer.alloc(0)
    socket.send(Buffer.concat([header, query.subarray(12, end), record]), from.port, from.address)
  })
  socket.bind(0, '127.0.0.1')
  await once(socket, 'listening')
  return { address: `127.0.0.1:${socket.address().port}`, close: () => new Promise<void>((resolve) => socket.close(() => resolve())) }
}
