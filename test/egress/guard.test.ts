import t from 'tap'
import { isGlobal, parseAllow } from '../../src/egress/address-policy.ts'
import { type EgressOptions, openEgress } from '../../src/egress/egress.ts'
import { REFUSALS, type Refusal } from '../../src/egress/target-url.ts'
import { ALLOWED_SPELLINGS, REFUSED_ADDRESSES, REFUSED_SPELLINGS } from './spellings.ts'

const neverAsked: NonNullable<EgressOptions['lookup']> = async (name) => {
  throw new Error(`${name} was resolved`)
}
const open = (allow: string[] = [], more: Partial<EgressOptions> = {}) => openEgress({ allow, clock: () => 0, lookup: neverAsked, ...more })
const get = { method: 'GET', deadlineMs: 60_000, maxBytes: 1000, over: 'cut', redirects: 0 } as const

t.test('an internal address is refused in every spelling, before DNS resolution', async (t) => {
  t.ok(REFUSED_SPELLINGS.length >= 80, `${REFUSED_SPELLINGS.length} spellings`)
  const counted: Refusal[] = []
  const egress = open([], { refused: (reason) => void counted.push(reason) })
  for (const [url, reason] of REFUSED_SPELLINGS) {
    t.equal(egress.check(url), reason, `check ${JSON.stringify(url)}`)
    t.match(await egress.request({ url, ...get }), { outcome: 'refused', reason }, `request ${JSON.stringify(url)}`)
  }
  t.same(counted, REFUSED_SPELLINGS.flatMap(([, reason]) => [reason, reason]), 'each refusal is counted once per call')
})

t.test('a public URL passes the check before DNS resolution', async (t) => {
  for (const url of ALLOWED_SPELLINGS) t.equal(open().check(url), null, url)
})

t.test('a name is refused if any of its addresses is not global unicast, as if it had none; the operator learns which', async (t) => {
  const refused: unknown[] = []
  for (const bad of REFUSED_ADDRESSES) {
    t.notOk(isGlobal(bad), `isGlobal ${bad}`)
    for (const answer of [[bad], ['8.8.8.8', bad], [bad, '2606:4700::1111']]) {
      const guard = (found: string[]) => open([], { lookup: async () => found, refused: (...one) => refused.push(one) })
      const reply = await guard(answer).request({ url: 'http://inward.example/', ...get })
      t.same(reply, { outcome: 'failed', reason: 'dns', status: null, durationMs: 0 }, JSON.stringify(answer))
      t.same(refused.splice(0), [['address_not_allowed', 'inward.example']])
      t.same(await guard([]).request({ url: 'http://inward.example/', ...get }), reply)
      t.same(refused, [])
    }
  }
})

t.test('a refusal does not reveal what a name resolved to', async (t) => {
  const of = (answer: string[]) => open([], { lookup: async () => answer }).request({ url: 'http://inward.example/', ...get })
  t.same(await of(['127.0.0.1']), await of(['10.1.2.3', '8.8.8.8']))
  for (const sentence of Object.values(REFUSALS)) t.notMatch(sentence, /resolve|loopback|private|internal/i)
})

t.test('EGRESS_ALLOW allows its entries and nothing else', async (t) => {
  const cases: [allow: string[], passes: string[], refused: string[]][] = [
    [['127.0.0.1/32'], ['http://127.0.0.1:81/', 'http://2130706433/', 'http://0x7f.1/', 'http://localhost:3000/'], ['http://127.0.0.2/', 'http://[::1]/', 'http://[::ffff:127.0.0.1]/']],
    [['127.0.0.1'], ['http://127.0.0.1/'], ['http://127.0.0.2/']],
    [['127.0.0.0/8'], ['http://127.9.9.9/'], ['http://128.0.0.1:22/', 'http://10.0.0.1/']],
    [['::1'], ['http://[::1]:3000/', 'http://localhost/'], ['http://127.0.0.1/', 'http://[::2]/']],
    [['localhost'], ['http://localhost:22/', 'http://LOCALHOST./'], ['http://127.0.0.1/', 'http://a.localhost/']],
    [['10.0.0.0/8', 'fd00::/8'], ['http://10.255.0.1:2049/', 'http://[fd12::1]/'], ['http://11.0.0.1:22/', 'http://[fc00::1]/', 'http://192.168.0.1/']],
    [['Hooks.Internal.'], ['http://hooks.internal:25/', 'https://hooks.internal./'], ['http://sub.hooks.internal:25/', 'http://internal:25/']],
    [['64:ff9b::/96'], ['http://[64:ff9b::8.8.8.8]/'], ['http://[64:ff9b:1::1]/']],
    [['0.0.0.0/0'], ['http://127.0.0.1/', 'http://10.0.0.1/'], ['http://[::1]/']],
  ]
  for (const [allow, passes, refused] of cases) {
    for (const url of passes) t.equal(open(allow).check(url), null, `${allow} allows ${url}`)
    for (const url of refused) t.ok(open(allow).check(url), `${allow} does not allow ${url}`)
  }
  t.equal(open(['localhost']).check('http://localhost:0/'), 'port_not_allowed')
  t.equal(open(['localhost']).check('ftp://localhost/'), 'scheme_not_allowed')
  t.equal(open(['localhost']).check('http://a@localhost/'), 'userinfo_not_allowed')
})

t.test('an allowed range does not allow the other addresses of a name', async (t) => {
  const egress = open(['10.0.0.0/8'], { lookup: async () => ['10.0.0.1', '192.168.0.1'] })
  t.match(await egress.request({ url: 'http://mixed.example/', ...get }), { outcome: 'failed', reason: 'dns' })
})

t.test('an invalid entry of EGRESS_ALLOW fails the start with an error that names it', async (t) => {
  for (const entry of ['', '10.0.0.0/33', '::/129', '10.0.0', '10.0.0.0/8/8', '10.0.0.0/', '1.2.3.4:80', '*', '*.internal', 'http://hooks', 'a b', '-x', '0x7f.1', '10.0.0.0/-1', '[::1]']) {
    t.throws(() => parseAllow([entry]), { name: 'RangeError', message: `"${entry}" is not` }, JSON.stringify(entry))
  }
})
