/** Outages of MongoDB: a server that is killed, frozen, slow, or refuses the credentials. */
import { connect, createServer, Socket } from 'node:net'
import { setImmediate as immediately } from 'node:timers/promises'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import { clientOf } from '../../../src/backends/mongodb/client.ts'
import { openStore, type Store } from '../../../src/backends/store/store.ts'
import { admit, ID, plan, settle, sessionOf, T0, task, taskId } from '../../contracts/store/acme.ts'
import { ownMongodb, type Mongodb } from '../../servers/mongodb.ts'
import { onMongodb } from './empty-store.ts'
import { listening } from '../../fakes/listening.ts'

async function opened(t: Test): Promise<{ server: Mongodb; store: Store } | null> {
  const server = await ownMongodb(t)
  if (!server) return null
  const store = await openStore(`${server.url}outages`)
  t.teardown(() => store.close())
  await store.change(ID, plan(), T0)
  return { server, store }
}

/** Retries until an answer comes, as every caller of the backend may. */
async function insist<T>(work: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await work()
    } catch (error) {
      if (!(error instanceof Unavailable)) throw error
      await new Promise((resolve) => setTimeout(resolve, 50))
    }
  }
}

t.test('a killed server loses nothing that it acknowledged, and the store reconnects without a restart', async (t) => {
  const found = await opened(t)
  if (!found) return
  const { server, store } = found
  const acknowledged = { requests: [] as string[], tasks: [] as string[], failures: 0 }
  let stopped = false
  const writers = Array.from({ length: 8 }, async (_, writer) => {
    for (let i = 0; !stopped; i++) {
      const n = i * 8 + writer
      try {
        const [answer] = await Promise.all([store.change(ID, admit(`r${n}`, 1), T0), store.createTask(task(n))])
        // `already`: the answer to the write was lost, and the store retried it.
        if (!['admitted', 'already'].includes(answer.outcome)) throw new Error(answer.outcome)
        acknowledged.requests.push(`r${n}`)
        acknowledged.tasks.push(taskId(n))
        if (n % 2 === 0) await store.change(ID, settle(`r${n}`, 1), T0)
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error
        acknowledged.failures++
      }
    }
  })
  for (let kill = 0; kill < 3; kill++) {
    const before = acknowledged.tasks.length
    while (acknowledged.tasks.length < before + 60) await new Promise((resolve) => setTimeout(resolve, 10))
    await server.kill()
    await server.start()
  }
  stopped = true
  await Promise.all(writers)
  t.comment(`${acknowledged.tasks.length} acknowledged, ${acknowledged.failures} without an answer`)

  const record = await insist(() => store.subscription(ID))
  const missing = acknowledged.requests.filter((id) => Number(id.slice(1)) % 2 === 1 && !record?.coding?.reservations[id])
  t.same(missing, [], 'every acknowledged reservation is there')
  // A repeated settlement is idempotent.
  await Promise.all(acknowledged.requests.map((id) => insist(() => store.change(ID, settle(id, 1), T0))))
  const { used } = sessionOf(await insist(() => store.subscription(ID)))
  t.ok(used >= acknowledged.requests.length && used <= acknowledged.requests.length + acknowledged.failures, `${used} were charged, each once`)
  for (const id of acknowledged.tasks) t.ok(await insist(() => store.task('acme', id)), id)
})

t.test('verbs on a frozen server are unavailable after a bounded time, and succeed once it is resumed', async (t) => {
  const found = await opened(t)
  if (!found) return
  const { server, store } = found
  await Promise.all(Array.from({ length: 20 }, (_, i) => store.createTask(task(i))))
  await server.freeze()
  t.teardown(() => server.thaw())
  // It may still answer commands that arrive before the signal.
  while (await store.clock().then(() => true, () => false)) await immediately()
  const longest = { ms: 0 }
  const refused = async (call: Promise<unknown>): Promise<void> => {
    const before = performance.now()
    const outcome = await call.then(() => 'answered', (error: unknown) => error)
    longest.ms = Math.max(longest.ms, performance.now() - before)
    t.type(outcome, Unavailable)
  }
  // More than there are connections: waiting for one is bounded as well.
  const many = Array.from({ length: 300 }, (_, i) => [
    store.change(ID, admit(`r${i}`, 1), T0),
    store.task('acme', taskId(i)),
    store.createTask(task(1000 + i)),
    store.findKey(`hash ${i}`),
  ])
  await Promise.all(many.flat().map(refused))
  await refused(store.heartbeat('i1', 1))
  await refused(openStore(`${server.url}outages`))
  t.ok(longest.ms < 40_000, `the longest wait took ${Math.round(longest.ms)} ms`)
  t.comment(`the longest wait took ${Math.round(longest.ms)} ms`)

  server.thaw()
  await insist(() => store.heartbeat('i1', 2))
  t.same(await insist(() => store.heartbeats()), [{ instance: 'i1', count: 2 }], 'a late heartbeat changed nothing')
  t.match(await insist(() => store.change(ID, admit('after', 1), T0)), { outcome: /admitted|already/ })
  // Late writes without an answer took effect at most once.
  const { coding } = (await insist(() => store.subscription(ID))) ?? {}
  t.ok(Object.keys(coding?.reservations ?? {}).length <= 301)
  const again = await insist(() => store.createTask(task(1000)))
  t.match(again.task, { id: taskId(1000), state: 'pending' })
})

/** A proxy to the server that a test can cut, or make stop reading. */
async function proxyTo(t: Test, url: string): Promise<{ url: string; port: number; near: Set<Socket>; stopReading(): void }> {
  const near = new Set<Socket>()
  const proxy = createServer((socket) => {
    near.add(socket)
    const far = connect(Number(new URL(url).port), '127.0.0.1')
    socket.on('error', () => {}).pipe(far.on('error', () => {})).pipe(socket)
    far.on('close', () => socket.destroy())
    // A half-open connection would keep this process alive.
    socket.on('close', () => near.delete(socket) && far.destroy())
  })
  const port = await listening(t, proxy)
  const through = new URL(url)
  through.port = String(port)
  // A replica set names its members, past the proxy.
  through.searchParams.set('directConnection', 'true')
  return {
    url: through.href,
    port,
    near,
    stopReading() {
      for (const socket of near) socket.unpipe().pause()
    },
  }
}

t.test('a verb called in the tick in which the server closes its connections is answered or unavailable, and does not hang', onMongodb(async (t, empty) => {
  const { url, port, near } = await proxyTo(t, empty.url)
  const store = await openStore(url)
  t.teardown(() => store.close())
  await store.heartbeat('i', 1)

  const calls: Promise<unknown>[] = []
  const { destroy } = Socket.prototype
  t.teardown(() => Object.assign(Socket.prototype, { destroy }))
  Socket.prototype.destroy = function (this: Socket, ...why) {
    // The close event follows after this tick.
    if (this.remotePort === port) setImmediate(() => calls.push(store.heartbeat('i', 2 + calls.length).catch((error: unknown) => error)))
    return destroy.apply(this, why)
  }
  for (const socket of near) socket.end()
  while (calls.length === 0) await new Promise((resolve) => setImmediate(resolve))
  Object.assign(Socket.prototype, { destroy })
  for (const outcome of await Promise.all(calls)) t.ok(outcome === undefined || outcome instanceof Unavailable)
  await insist(() => store.heartbeat('i', 1000))
  t.same(await store.heartbeats(), [{ instance: 'i', count: 1000 }])
}))

t.test('a command to a server that has stopped reading fails after its timeout', onMongodb(async (t, empty) => {
  const { url, stopReading } = await proxyTo(t, empty.url)
  const client = clientOf(url, 'request')
  t.teardown(() => client.close(true))
  const collection = client.db().collection<{ _id: number; text: string }>('large')
  await collection.insertOne({ _id: 1, text: '' })
  stopReading()
  // Larger than the buffers of both sides.
  await t.rejects(collection.insertOne({ _id: 2, text: 'x'.repeat(14_000_000) }), { name: 'MongoNetworkTimeoutError' })
}))

/** A proxy to `port` with a delay of `ms` each way. */
async function slowProxy(t: Test, port: number, ms: number): Promise<number> {
  const later = (from: Socket, to: Socket): void => {
    from.on('data', (chunk) => setTimeout(() => to.write(chunk), ms))
    from.on('close', () => to.destroy())
    from.on('error', () => to.destroy())
  }
  const proxy = createServer((near) => {
    const far = connect(port, '127.0.0.1')
    later(near, far)
    later(far, near)
  })
  return listening(t, proxy)
}

t.test('a server that takes half a second to answer is slow, but every verb succeeds', onMongodb(async (t, { url, place }) => {
  const direct = await (await place(t)).open()
  await direct.change(ID, plan(), T0)
  const slow = new URL(url)
  slow.port = String(await slowProxy(t, Number(slow.port), 250))
  slow.searchParams.set('directConnection', 'true')
  const store = await openStore(slow.href)
  t.teardown(() => store.close())
  const answers = await Promise.all(Array.from({ length: 100 }, (_, i) => store.change(ID, admit(`r${i}`, 1), T0)))
  t.ok(answers.every(({ outcome }) => outcome === 'admitted'))
  const created = await Promise.all(Array.from({ length: 100 }, (_, i) => store.createTask(task(i))))
  t.ok(created.every(({ outcome }) => outcome === 'created'))
}))

t.test('wrong credentials and a read-only user are refused in a sentence at the start', async (t) => {
  const server = await ownMongodb(t, { auth: true })
  if (!server) return
  const store = await openStore(`${server.url}outages?authSource=admin`)
  await store.heartbeat('i1', 1)
  await store.close()
  const place = `127.0.0.1:${new URL(server.url).port}/outages`
  const wrong = `${server.url.replace('keeper-secret', 'wrong-secret')}outages?authSource=admin`
  await t.rejects(openStore(wrong), { message: `The store ${place} refuses the credentials: check the user, the password and authSource in STORE_URL.` })
  const none = server.url.replace('keeper:keeper-secret@', '')
  const denied = /^The store .+ denies read or write access: give the user of STORE_URL the role readWrite .+\.$/
  await t.rejects(openStore(`${none}outages`), { message: denied })
  await t.rejects(openStore(`${server.readOnlyUrl}outages?authSource=admin`), { message: denied })
  await t.rejects(openStore(`${server.readOnlyUrl}nothing-there-yet?authSource=admin`), { message: denied })
  const reader = await openStore(`${server.readOnlyUrl}outages?authSource=admin`, { readOnly: true })
  t.same(await reader.subscriptionsWith('plan', '', 10), [], 'a read-only store needs no write access')
  await reader.close()
})
