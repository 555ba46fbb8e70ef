/** Unit tests of the parts of `kubernetes:`: address, informer cache, watch stream, concurrency limit, reflector back-off. */
import { PassThrough } from 'node:stream'
import { setImmediate as turn } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { readAddress } from '../../../src/backends/resources/kubernetes/kubernetes-url.ts'
import { Unavailable } from '../../../src/domain/errors.ts'
import { openCache } from '../../../src/backends/resources/kubernetes/informer-cache.ts'
import type { Client } from '../../../src/backends/resources/kubernetes/api-client.ts'
import { openConcurrencyLimit } from '../../../src/backends/resources/kubernetes/concurrency-limit.ts'
import { COLLECTIONS, isLater, type KubeObject } from '../../../src/backends/resources/kubernetes/api-objects.ts'
import { openReflector } from '../../../src/backends/resources/kubernetes/reflector.ts'
import { lines } from '../../../src/backends/resources/kubernetes/watch-stream.ts'
import { eventually } from '../../flows/eventually.ts'

function object(name: string, version: string, uid = `uid-${name}`, namespace = 'acme'): KubeObject {
  return { metadata: { name, namespace, uid, resourceVersion: version, creationTimestamp: '2026-01-05T00:00:00Z' } }
}

t.test('an address names namespaces, a kubeconfig and a lease, and nothing else', async (t) => {
  t.same(readAddress('kubernetes:'), { namespaces: null, kubeconfig: null, lease: 'tollgate-controller', leaseNamespace: null })
  t.same(readAddress('kubernetes://'), readAddress('kubernetes:'))
  t.same(readAddress('kubernetes:?namespace=a,b,a&kubeconfig=/etc/k&lease=l&leaseNamespace=n'), { namespaces: ['a', 'b'], kubeconfig: '/etc/k', lease: 'l', leaseNamespace: 'n' })
  for (const url of ['kubernetes:acme', 'kubernetes://host', 'kubernetes:?namespaces=a', 'kubernetes:?namespace=', 'kubernetes:?namespace=a,,b', 'kubernetes:?namespace=A', 'kubernetes:?lease=a/b', 'kubernetes:?namespace=a&namespace=b', 'kubernetes:?namespace=a#b']) {
    t.throws(() => readAddress(url), { message: /^RESOURCES_URL was ".*"; kubernetes: may be followed by/ }, url)
  }
})

t.test('resource versions are compared as numbers', async (t) => {
  t.ok(isLater('10', '9'))
  t.notOk(isLater('9', '10'))
  t.notOk(isLater('10', '10'))
  t.ok(isLater('900719925474099300001', '900719925474099300000'))
})

t.test('an object in the cache is never replaced by an older version', async (t) => {
  const cache = openCache()
  cache.put(null, object('a', '5'))
  cache.putWritten(object('a', '9'))
  t.equal(cache.put(null, object('a', '7')), null)
  t.equal(cache.put(null, object('a', '9')), null, 'the event of a write whose response is cached')
  t.match(cache.put(null, object('a', '10')), { before: { metadata: { resourceVersion: '9' } }, after: { metadata: { resourceVersion: '10' } } })
  t.match(cache.get('acme', 'a'), { metadata: { resourceVersion: '10' } })
})

t.test('a late response to a write does not bring back a deleted object, and a deletion does not remove a new object of its name', async (t) => {
  const cache = openCache()
  cache.put(null, object('a', '5'))
  cache.remove(null, object('a', '7'))
  cache.putWritten(object('a', '6'))
  t.equal(cache.get('acme', 'a'), null)
  cache.putWritten(object('a', '8', 'uid-new'))
  t.match(cache.get('acme', 'a'), { metadata: { uid: 'uid-new' } })
  t.equal(cache.remove(null, object('a', '9', 'uid-a')), null)
  t.match(cache.get('acme', 'a'), { metadata: { uid: 'uid-new' } })
  cache.removeDeleted(object('a', '9', 'uid-a'))
  t.ok(cache.get('acme', 'a'))
})

t.test('a list yields the changes and deletions of its namespace, keeps newer objects, and counts changes that the watch missed', async (t) => {
  const cache = openCache()
  t.equal(cache.replace('acme', [object('a', '1'), object('b', '2'), object('c', '3')], '10').missed, 0, 'a first list misses nothing')
  cache.replace('globex', [object('a', '4', 'uid-g', 'globex')], '10')
  cache.passed('acme', '20')
  cache.putWritten(object('new', '31'))
  const { changes, missed } = cache.replace('acme', [object('a', '1'), object('b', '15'), object('d', '25')], '30')
  const named = changes.map(({ before, after }) => `${before ? '-' : '+'}${after ? '+' : '-'} ${(after ?? before)?.metadata.name}`)
  t.same(named, ['-+ b', '++ d', '-- c'])
  t.equal(missed, 1, 'b changed at 15, and the watch had come to 20')
  t.same([...cache.all()].map(({ metadata }) => `${metadata.namespace}/${metadata.name}`).sort(), ['acme/a', 'acme/b', 'acme/d', 'acme/new', 'globex/a'])
})

/** Objects as `name@version`, or `name@version/content` where one version may have several contents. */
function objects(listed: string): KubeObject[] {
  return listed.split(' ').filter(Boolean).map((text) => {
    const [, name = '', version = '', content] = /^(\w+)@(\d+)(?:\/(\w+))?$/.exec(text) ?? []
    return { ...object(name, version), ...(content !== undefined && { spec: content }) }
  })
}

function shown({ metadata, spec }: KubeObject): string {
  return `${metadata.name}@${metadata.resourceVersion}${spec === undefined ? '' : `/${spec}`}`
}

/** The cache of a watch at version `position`, and objects from responses to writes (`learned`); then a list at version `at`. */
const LISTS = [
  { what: 'nothing happened', cached: 'a@5 b@6', position: '10', listed: 'a@5 b@6', at: '20', kept: 'a@5 b@6', changes: '', missed: 0 },
  { what: 'changes after the position of the watch', cached: 'a@5 b@6', position: '10', listed: 'a@15 c@16', at: '20', kept: 'a@15 c@16', changes: 'a@5>a@15 >c@16 b@6>', missed: 0 },
  { what: 'changes before the position of the watch', cached: 'a@5 b@6', position: '20', listed: 'a@15 c@16', at: '20', kept: 'a@15 c@16', changes: 'a@5>a@15 >c@16 b@6>', missed: 3 },
  { what: 'a write after the list', cached: 'a@5', position: '10', learned: 'a@25 new@26', listed: 'a@5', at: '20', kept: 'a@25 new@26', changes: '', missed: 0 },
  { what: 'a write that the list has', cached: 'a@5', position: '10', learned: 'a@15', listed: 'a@15', at: '20', kept: 'a@15', changes: '', missed: 0 },
  { what: 'a write that was overwritten before the list', cached: 'a@5', position: '10', learned: 'a@15 b@16', listed: 'a@18', at: '20', kept: 'a@18', changes: 'a@15>a@18 b@16>', missed: 0 },
  { what: 'etcd was restored', cached: 'a@5 b@80 lost@90', position: '100', listed: 'a@5 b@6', at: '20', kept: 'a@5 b@6', changes: 'b@80>b@6 lost@90>', missed: 2 },
  { what: 'etcd was restored, and own writes are lost', cached: 'a@5', position: '100', learned: 'a@120 new@121', listed: 'a@5', at: '20', kept: 'a@5', changes: 'a@120>a@5 new@121>', missed: 2 },
  { what: 'etcd was restored, and a version has another content', cached: 'a@15/old b@16/old', position: '100', listed: 'a@15/new b@16/old', at: '20', kept: 'a@15/new b@16/old', changes: 'a@15/old>a@15/new', missed: 1 },
  { what: 'etcd was restored to an empty collection', cached: 'a@5', position: '100', listed: '', at: '9', kept: '', changes: 'a@5>', missed: 1 },
  { what: 'etcd was restored, and versions are higher again', cached: 'a@50 b@80 lost@90', position: '100', listed: 'a@110 b@6', at: '120', kept: 'a@110 b@6', changes: 'a@50>a@110 b@80>b@6 lost@90>', missed: 1 },
]

for (const { what, cached, position, learned = '', listed, at, kept, changes, missed } of LISTS) {
  t.test(`a list is authoritative up to its version: ${what}`, async (t) => {
    const cache = openCache()
    cache.replace('acme', objects(cached), position)
    for (const one of objects(learned)) cache.putWritten(one)
    const elsewhere = object('a', '99', 'uid-g', 'globex')
    cache.replace('globex', [elsewhere], '100')
    const replaced = cache.replace('acme', objects(listed), at)
    t.equal(replaced.changes.map(({ before, after }) => `${before ? shown(before) : ''}>${after ? shown(after) : ''}`).join(' '), changes)
    t.equal(replaced.missed, missed)
    t.equal([...cache.all()].filter((one) => one !== elsewhere).map(shown).sort().join(' '), kept)
    t.equal(cache.get('globex', 'a'), elsewhere, 'another namespace is not affected')
    t.same(cache.replace('acme', objects(kept), at), { changes: [], missed: 0 }, 'the same list again has no changes')
  })
}

t.test('after a restore of etcd, watch events and responses to writes are compared by the versions of the new history', async (t) => {
  const cache = openCache()
  cache.replace(null, objects('a@80 b@81 c@82'), '100')
  cache.replace(null, objects('a@5 b@6 c@7'), '20')
  cache.putWritten(object('a', '21'))
  t.match(cache.get('acme', 'a'), { metadata: { resourceVersion: '21' } })
  t.ok(cache.put(null, object('b', '22')))
  t.ok(cache.remove(null, object('c', '23')))
  cache.putWritten(object('c', '22'))
  t.equal(cache.get('acme', 'c'), null, 'the watch delivered its deletion')
  cache.putWritten(object('new', '24'))
  t.ok(cache.get('acme', 'new'), 'deletions of the former history do not matter')
  cache.removeDeleted(object('new', '24'))
  t.equal(cache.get('acme', 'new'), null)
})

t.test('before a list finds a restore of etcd, a response with a lower version is ignored, and an own deletion applies at once', async (t) => {
  const cache = openCache()
  cache.replace(null, objects('a@80 b@81'), '100')
  cache.putWritten(object('a', '21'))
  t.match(cache.get('acme', 'a'), { metadata: { resourceVersion: '80' } }, 'it could be a late response')
  cache.removeDeleted(object('b', '6'))
  t.equal(cache.get('acme', 'b'), null)
  cache.replace(null, objects('a@21'), '30')
  t.match(cache.get('acme', 'a'), { metadata: { resourceVersion: '21' } })
})

t.test('lines are reassembled from any chunks, and an incomplete last line is dropped', async (t) => {
  const bytes = new TextEncoder().encode('{"a":"ä€"}\n\n{"b":2}\n{"half')
  for (const size of [1, 2, 3, 7, 100]) {
    const read: string[] = []
    const chunks = Array.from({ length: Math.ceil(bytes.length / size) }, (_, i) => bytes.subarray(i * size, (i + 1) * size))
    for await (const line of lines(streamOf(chunks))) read.push(line)
    t.same(read, ['{"a":"ä€"}', '{"b":2}'])
  }
})

async function* streamOf(chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield chunk
}

t.test('the concurrency limit admits calls in order of arrival, and a failed call frees its slot', async (t) => {
  const limit = openConcurrencyLimit(2)
  const finish: (() => void)[] = []
  const started: number[] = []
  const start = (n: number) =>
    limit(async () => {
      started.push(n)
      await new Promise<void>((resolve) => finish.push(resolve))
      if (n === 0) throw new Error('failed')
    })
  const all = [0, 1, 2, 3].map((n) => start(n).catch(() => 'failed'))
  await new Promise((resolve) => setImmediate(resolve))
  t.same(started, [0, 1])
  finish.shift()?.()
  await new Promise((resolve) => setImmediate(resolve))
  t.same(started, [0, 1, 2])
  while (finish.length > 0) {
    finish.shift()?.()
    await new Promise((resolve) => setImmediate(resolve))
  }
  t.same(await Promise.all(all), ['failed', undefined, undefined, undefined])
})

/** A reflector of a server that lists nothing and answers each watch with 410 Gone; `beforeList` and `beforeWatch` run before each response. */
function openExpiring(t: Test, { beforeList = () => {}, beforeWatch = turn }: { beforeList?: () => void; beforeWatch?: () => Promise<unknown> }) {
  const listedAt: number[] = []
  const client = {
    async request() {
      beforeList()
      listedAt.push(Date.now())
      return { status: 200, body: { metadata: { resourceVersion: '1' }, items: [] } }
    },
    async stream() {
      await beforeWatch()
      return { status: 410, body: {} }
    },
  }
  const log = { warn: () => {} }
  const reflector = openReflector({ client: client as unknown as Client, collection: COLLECTIONS.Plan, scope: 'acme', cache: openCache(), changed: () => {}, log, random: () => 0 })
  t.teardown(() => reflector.stop())
  const lists = (count: number) => eventually(`list ${count}`, async () => (listedAt.length >= count ? true : null))
  return { reflector, listedAt, lists }
}

/** Advances the monotonic clock. */
function skipping(t: Test): (ms: number) => void {
  const now = performance.now.bind(performance)
  let skippedMs = 0
  t.intercept(performance, 'now', { value: () => now() + skippedMs })
  return (ms) => void (skippedMs += ms)
}

t.test('a server that expires each version that it has just listed is retried with back-off, however long its lists take', async (t) => {
  const skip = skipping(t)
  for (const beforeList of [() => {}, () => skip(15_000)]) {
    const { reflector, listedAt, lists } = openExpiring(t, { beforeList })
    await reflector.start()
    await lists(4)
    t.ok(listedAt[3]! - listedAt[0]! > 650, 'after 100, 200 and 400 ms')
    t.ok(reflector.stats().failures >= 3, 'each failure is counted')
    await reflector.stop()
  }
})

t.test('an expired version of an old list is listed again at once, and counted as a failure', async (t) => {
  const skip = skipping(t)
  let watches = 0
  const held = Promise.withResolvers<void>()
  const beforeWatch = () => {
    if (++watches > 4) return held.promise
    skip(15_000)
    return turn()
  }
  const { reflector, listedAt, lists } = openExpiring(t, { beforeWatch })
  await reflector.start()
  await lists(5)
  t.equal(reflector.stats().failures, 4)
  t.ok(listedAt[4]! - listedAt[0]! < 1_400, 'four back-offs would take longer')
  t.equal(reflector.lastError(), null)
  held.resolve()
})

/** A reflector of a server that lists at the versions in `lists`, fails lists while that is empty, and accepts every watch. It has listed at 10 and watches `first`. */
async function openWithFailingLists(t: Test) {
  const lists = ['10']
  const watches: { version: string; body: PassThrough }[] = []
  const changes: string[] = []
  let refused = 0
  const client = {
    async request() {
      const resourceVersion = lists.shift()
      if (resourceVersion !== undefined) return { status: 200, body: { metadata: { resourceVersion }, items: [] } }
      refused++
      throw new Unavailable('resources', new Error('no list today'))
    },
    async stream(_path: string, { resourceVersion: version = '' }: Record<string, string>, signal: AbortSignal) {
      const body = new PassThrough()
      signal.addEventListener('abort', () => body.destroy(new Error('aborted')))
      watches.push({ version, body })
      return body
    },
  }
  const reflector = openReflector({
    client: client as unknown as Client,
    collection: COLLECTIONS.Plan,
    scope: 'acme',
    cache: openCache(),
    changed: ({ before, after }) => changes.push(shown((after ?? before)!)),
    log: { warn: () => {} },
    random: () => 0,
    relistMs: 100_000,
  })
  t.teardown(async () => {
    watches.at(-1)?.body.destroy()
    await reflector.stop()
  })
  const watch = (count: number) => eventually(`watch ${count}`, async () => watches[count - 1] ?? null)
  /** Sends one change and ends the watch. */
  const send = (body: PassThrough, change: string) => body.end(objects(change).map((one) => `${JSON.stringify({ type: 'MODIFIED', object: one })}\n`).join(''))
  await reflector.start()
  return { reflector, lists, changes, first: await watch(1), watch, send, refused: () => refused }
}

t.test('a server that fails a periodic list is watched on from the last version, and listed again later', async (t) => {
  const skip = skipping(t)
  const { reflector, lists, changes, first, watch, send, refused } = await openWithFailingLists(t)
  skip(100_000)
  send(first.body, 'a@15')
  const second = await watch(2)
  t.equal(refused(), 1)
  t.equal(second.version, '15')
  t.equal(reflector.stats().failures, 1)
  send(second.body, 'a@16')
  const third = await watch(3)
  t.same(changes, ['a@15', 'a@16'])
  await eventually('the error to be cleared by the watch', async () => (reflector.lastError() === null ? true : null))
  t.equal(refused(), 1, 'the list is not retried at once')
  skip(25_000)
  lists.push('20')
  send(third.body, 'a@17')
  t.equal((await watch(4)).version, '20')
  t.equal(reflector.stats().lists, 2)
})

t.test('a server that fails a periodic list and then expires the watch has an error until it lists', async (t) => {
  const skip = skipping(t)
  const { reflector, lists, first, watch, send, refused } = await openWithFailingLists(t)
  skip(100_000)
  send(first.body, 'a@15')
  const second = await watch(2)
  second.body.end(`${JSON.stringify({ type: 'ERROR', object: { code: 410 } })}\n`)
  await eventually('another list', async () => (refused() > 1 && reflector.lastError()?.includes('no list today') ? true : null))
  lists.push('20')
  t.equal((await watch(3)).version, '20')
  t.equal(reflector.lastError(), null)
})

t.test('a watch that breaks after a longer silence than bookmarks allow is followed by a list, since the server may be behind its version', async (t) => {
  const skip = skipping(t)
  const { lists, first, watch } = await openWithFailingLists(t)
  skip(5_000)
  first.body.destroy(new Error('broken'))
  const second = await watch(2)
  t.equal(second.version, '10', 'a short silence may be a restart of the server')
  lists.push('5')
  skip(91_000)
  second.body.destroy(new Error('idle'))
  t.equal((await watch(3)).version, '5')
})

t.test('a refresh resolves after the next successful list, a watch does not hide that lists fail, and a stop rejects it', async (t) => {
  const { reflector, lists, watch, refused } = await openWithFailingLists(t)
  const refreshed = Promise.all([reflector.refresh(), reflector.refresh()])
  await eventually('it to fail', async () => (refused() >= 3 ? true : null))
  t.match(reflector.lastError(), /no list today/)
  lists.push('20')
  await refreshed
  t.equal((await watch(2)).version, '20')
  const late = t.rejects(reflector.refresh(), Unavailable)
  await reflector.stop()
  await late
  await t.rejects(reflector.refresh(), Unavailable)
})

for (const kind of ['Plan', 'ApiKey'] as const) {
  t.test(`without the CRD of ${kind} the error names it and says how it is installed`, async (t) => {
    const request = async () => ({ status: 404, body: { message: '404 page not found' } as never })
    const client = { request } as unknown as Client
    const reflector = openReflector({ client, collection: COLLECTIONS[kind], scope: null, cache: openCache(), changed: () => {}, log: { warn: () => {} } })
    await reflector.start()
    await eventually('the first error', async () => (reflector.stats().failures > 0 ? true : null))
    const plural = kind === 'Plan' ? 'plans' : 'apikeys'
    t.equal(reflector.lastError(), `${plural}: the CustomResourceDefinition ${plural}.tollgate.dev is not installed. The chart installs it with crds.enabled; without that, a cluster administrator applies crds/`)
    await reflector.stop().catch(() => {})
  })
}
