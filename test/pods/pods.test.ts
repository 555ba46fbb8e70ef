/** The chart and the image on a node that runs pods: an installation from `helm install` to `helm uninstall`, with a tenant that calls both products while pods are killed and replaced. */
import { execFile } from 'node:child_process'
import { symlinkSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { promisify } from 'node:util'
import t, { type Test } from 'tap'
import { CHART, helm } from '../chart/chart.ts'
import { answer, at, chat, get, post, type Caller } from '../flows/calls.ts'
import { earlierVersion } from '../flows/earlier.ts'
import { mediaPlan } from '../backends/resources/manifests.ts'
import { runbookCommands } from '../monitoring/runbook-commands.ts'
import { commandsOf } from '../page-blocks.ts'
import { installed } from '../servers/client.ts'
import { command } from '../servers/command.ts'
import type { Answered } from '../servers/kube/api.ts'
import { kubectl as program } from '../servers/kubernetes.ts'
import { openBrowser } from './browser.ts'
import { listenLong, openLoad, type Keys } from './load.ts'
import { BUYER, documents, KEYS, NAMESPACE, PLANS, PROGRAM } from './manifests.ts'
import { PUBLIC_URL } from './provider.ts'
import { GATE, IMAGE, killPod, makeImage, openSite, secrets, TENANT, until, values } from './site.ts'

const LONGEST_MS = 1_800_000
/** Timeout of helm. */
const LONGEST = '600s'

t.setTimeout(LONGEST_MS)

t.test('an installation on a node', { timeout: LONGEST_MS }, async (t) => {
  const since = performance.now()
  const site = await openSite(t)
  if (!site) return
  const { kubectl, model, mongodb, node } = site
  const took = (what: string, from: number) => t.comment(`${what} took ${((performance.now() - from) / 1000).toFixed(1)} s`)
  took('a node, its neighbours and the image', since)
  /** The earlier version, whose image is built while this version is installed. */
  const earlierOnNode = earlierVersion(t, { isBuilt: true }).then(async (earlier) => {
    if (earlier) await node.importImage(await makeImage(t, earlier.root, '0'))
    took(`all until the image of ${earlier?.commit}`, since)
    return earlier
  })
  // The step that needs it awaits it.
  earlierOnNode.catch(() => {})
  const helmed = (...args: string[]) => helm(args, node.kubeconfig)
  const folder = t.testdir({})
  symlinkSync(dirname(CHART), join(folder, 'charts'))
  const writeValues = (tag: string) => writeFileSync(join(folder, 'values.yaml'), JSON.stringify(values(site, tag)))
  const PATH = [dirname(program()), dirname(installed('helm')), process.env['PATH']].join(':')
  /** Runs commands of the chart's pages as they stand, in a folder with the chart and the values. */
  const sh = (commands: string) => promisify(execFile)('sh', ['-ec', commands], { cwd: folder, env: { ...process.env, PATH, KUBECONFIG: node.kubeconfig } })
  const read = async (...args: string[]): Promise<Answered> => JSON.parse(await kubectl(['get', '--output=json', ...args]))
  const pods = async (role: string): Promise<Answered[]> => (await read('pods', '--namespace', GATE, '--selector', `app.kubernetes.io/component=${role}`)).items
  /** The numbers of pods that the Deployments are to have, by name. */
  const deployments = async (): Promise<Record<string, number>> =>
    Object.fromEntries((await read('deployments', '--namespace', GATE)).items.map(({ metadata, spec }: Answered) => [metadata.name, spec.replicas]))
  /** Each step depends on those before it. */
  const step = async (name: string, promise: (t: Test) => Promise<void>) => {
    if (t.passing()) await t.test(name, promise)
  }

  await step('the commands of docs/chart.md install a release that passes helm test, under the restricted Pod Security Standard', async (t) => {
    writeValues('1')
    writeFileSync(join(folder, 'engines.yaml'), 'engines: []')
    await command('openssl', ['req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=api.example.com', '-keyout', join(folder, 'tls.key'), '-out', join(folder, 'tls.crt')])
    const [install = ''] = commandsOf('docs/chart.md', 'Install')
    const [before = '', after = ''] = install.split(/^(?=helm install)/m)
    await sh(before)
    // The addresses and keys of this site, in place of those of the page.
    await kubectl(['apply', '--filename', '-'], { input: documents([NAMESPACE, ...BUYER, ...secrets(site)]) })
    const from = performance.now()
    await sh(after)
    took('helm install --wait and helm test', from)
    const all = (await read('pods', '--namespace', GATE, '--selector', 'pod-template-hash')).items as Answered[]
    t.equal(all.length, 7)
    for (const { metadata, status } of all) t.same(status.containerStatuses.map(({ restartCount }: Answered) => restartCount), [0], metadata.name)
    await t.rejects(kubectl(['run', 'loose', '--namespace', GATE, '--image', `${IMAGE}:1`, '--dry-run=server']), /violates PodSecurity/, 'an unrestricted pod is refused')
  })

  await step('containers run as a non-root user with a read-only root and scratch space of workers alone, and only the controller has a ServiceAccount token', async (t) => {
    const look = `
      const fs = require('node:fs')
      const refused = (path) => { try { fs.writeFileSync(path, ''); return 'written' } catch ({ code }) { return code } }
      console.log(JSON.stringify({ uid: process.getuid(), root: refused('/seen'), app: refused('/app/seen'), tmp: refused('/tmp/seen'), token: fs.existsSync('/var/run/secrets/kubernetes.io') }))`
    for (const role of ['gateway', 'worker', 'dispatcher', 'controller']) {
      const seen = JSON.parse(await kubectl(['exec', '--namespace', GATE, (await pods(role))[0].metadata.name, '--', 'node', '--eval', look]))
      t.same(seen, { uid: 65532, root: 'EROFS', app: 'EROFS', tmp: role === 'worker' ? 'written' : 'EROFS', token: role === 'controller' }, role)
    }
  })

  /** Tasks recovered from dead workers, as counted by the current workers. */
  const lostLeases = async (): Promise<number> => {
    const texts = (await pods('worker')).map(async ({ status }) => (await fetch(`http://${status.podIP}:9090/metrics`)).text())
    const counted = (await Promise.all(texts)).map((text) => Number(/^tollgate_tasks_swept_total\{reason="lost_lease"\} (\d+)/m.exec(text)?.[1] ?? 0))
    return counted.reduce((sum, count) => sum + count, 0)
  }

  let token = ''
  const asTenant = (...args: string[]) => kubectl(['--namespace', TENANT, ...args], { token })
  const keyOf = async (name: string) => Buffer.from(JSON.parse(await asTenant('get', 'secret', name, '--output=json')).data['api-key'], 'base64').toString()
  const keys: Keys = { coding: '', media: '' }
  const gateway: Caller = { url: '' }

  await step("what a tenant's account applies is ready within seconds, and its pod calls both products with the keys mounted", async (t) => {
    token = (await kubectl(['create', 'token', 'buyer', '--namespace', TENANT])).trim()
    await t.rejects(kubectl(['apply', '--filename', '-'], { token, input: documents([mediaPlan('studio', {}, { allowance: '1000.01' })]) }), /media\.allowance may be at most 1000/)
    const from = performance.now()
    await kubectl(['apply', '--filename', '-'], { token, input: documents([...PLANS, ...KEYS, ...PROGRAM]) })
    await asTenant('wait', 'plans,apikeys', '--all', '--for=condition=Ready', '--timeout=30s')
    took('apply to Ready', from)
    await asTenant('wait', 'job/program', '--for=condition=Complete', '--timeout=120s')
    took("apply to the end of the tenant's pod", from)
    const seen = JSON.parse(await asTenant('logs', 'job/program'))
    t.match(seen, { chat: 'data: [DONE]', task: { status: 'completed', actual_cost: '0.0400' }, picture: { status: 200, type: 'PNG' } })
    t.equal(seen.picture.bytes, seen.task.result.bytes)
    Object.assign(keys, { coding: await keyOf('coding-key'), media: await keyOf('media-key') })
    // The machine reaches Services as pods do.
    gateway.url = `http://${(await read('service', 'tollgate-gateway', '--namespace', GATE)).spec.clusterIP}`
    t.ok(String(seen.picture.link).startsWith(`${PUBLIC_URL}/`), 'results are behind the public address')
  })

  const browser = openBrowser()
  /** Addresses of the gateways' pods. */
  const gateways = async () => (await pods('gateway')).filter(({ metadata }) => !metadata.deletionTimestamp).map(({ status }) => `http://${status.podIP}:8080`)

  await step('a person who signs in at a provider with a private certificate authority has a session at every gateway, and learns who can change keys', async (t) => {
    await browser.signIn(gateway.url)
    for (const url of await gateways()) {
      t.match(await browser.get(url, '/dashboard/api/session'), { status: 200, body: { user: { id: 'ada' }, tenant: TENANT, sign_in: 'oidc', key_management: { allowed: false, reason: /ApiKey resource/ } } })
      t.match(await browser.get(url, '/dashboard/api/keys'), { body: { data: [{ name: 'coding' }, { name: 'media' }] } })
    }
    t.match(await browser.send(gateway.url, '/dashboard/api/keys', { name: 'laptop', plan: 'coder' }), { status: 403, body: { error: { code: 'key_management_off' }, detail: /ApiKey resource/ } })
  })

  /** Charges of the Media plan, once no task is open. */
  const burned = async (): Promise<number> => {
    const usage = async () => (await get(gateway, keys.media, '/api/v1/usage')).body
    await until(async () => at(await usage(), 'held') === '0.0000')
    return Number(at(await usage(), 'burned'))
  }

  await step('the commands of the runbooks that only read run as they stand', async (t) => {
    const [{ metadata }] = await pods('gateway')
    const names: Record<string, string> = { namespace: GATE, tenant: TENANT, name: 'coding', role: 'gateway', pod: metadata.name }
    const reading = runbookCommands().flatMap(({ page, command }) => {
      const text = command.replaceAll(/<(\w+)>/g, (placeholder, name: string) => names[name] ?? placeholder)
      return /<\w+>|^helm | (cordon|delete|rollout|scale|port-forward|--yes|--previous)\b/.test(text) ? [] : [{ page, text }]
    })
    t.ok(reading.length >= 12, `${reading.length} commands`)
    for (const { page, text } of reading) await t.resolves(sh(text), `${page}: ${text}`)
  })

  await step('a suspended plan is refused with 403, and served again once it is active', async (t) => {
    const ask = async () => (await answer(await post(gateway, keys.coding, '/v1/chat/completions', { model: 'svc-code', messages: [{ role: 'user', content: 'Hello' }] }))).status
    t.equal(await ask(), 200)
    for (const [state, status] of [['Suspended', 403], ['Active', 200]] as const) {
      const from = performance.now()
      await asTenant('patch', 'plan/coder', '--type=merge', '--patch', JSON.stringify({ spec: { state } }))
      await until(async () => (await ask()) === status)
      took(`${state}, from the patch to ${status},`, from)
      for (let n = 0; n < 10; n++) t.equal(await ask(), status, 'by every gateway')
    }
    await asTenant('wait', 'apikeys', '--all', '--for=condition=Ready', '--timeout=30s')
  })

  await step('tasks of a killed worker are retried, made and charged once', async (t) => {
    const before = await burned()
    const FILM = { kind: 'video', prompt: 'a lighthouse', size: '640x360', duration_seconds: 4 }
    const ids: string[] = []
    const states = () => Promise.all(ids.map(async (id) => at((await get(gateway, keys.media, `/api/v1/generations/${id}`)).body, 'status')))
    const [{ metadata: victim }] = await pods('worker')
    // Two run in each pod on a node of two cores, so that the third is in the other. The queue stays filled, however long a look takes.
    await until(async () => {
      const seen = await states()
      const isOpen = seen.filter((state) => state !== 'completed').length
      for (let n = isOpen; n < 6; n++) ids.push(String(at((await answer(await post(gateway, keys.media, '/api/v1/generations', FILM))).body, 'id')))
      return seen.filter((state) => state === 'processing').length > 2
    })
    await killPod(victim.uid)
    await until(async () => (await states()).every((state) => state === 'completed'))
    await until(async () => (await pods('worker')).some(({ status }) => status.containerStatuses[0].restartCount === 1))
    await until(async () => (await pods('worker')).every(({ status }) => status.containerStatuses[0].ready))
    t.ok((await lostLeases()) > 0, 'a running task was recovered')
    t.equal(((await burned()) - before).toFixed(4), (ids.length * 4 * 0.05).toFixed(4))
    t.same((await pods('worker')).map(({ status }) => status.containerStatuses[0].restartCount).sort(), [0, 1])
  })

  await step('when a gateway is killed under load, clients that retry are all served, and nothing is charged twice', async (t) => {
    const before = await burned()
    const load = openLoad(gateway, keys, { clients: 4, again: true })
    await pause(1000)
    await killPod((await pods('gateway'))[0].metadata.uid)
    await until(async () => (await pods('gateway')).some(({ status }) => status.containerStatuses[0].restartCount === 1))
    await until(async () => (await pods('gateway')).every(({ status }) => status.containerStatuses[0].ready))
    const { done, failed, ordered } = await load.stop()
    t.comment(`${done} calls`)
    t.same(failed, [])
    t.equal(((await burned()) - before).toFixed(4), (ordered * 0.04).toFixed(4))
  })

  await step('the earlier version replaces this one under load, and this one it again: no request fails, streams that are open are waited for, every image is charged once, and verify finds nothing', async (t) => {
    const earlier = await earlierOnNode
    const before = await burned()
    const load = openLoad(gateway, keys, { clients: 4, again: false })
    for (const [chart, tag] of [...(earlier ? [[join(earlier.root, 'charts/tollgate'), '0'] as const] : []), [CHART, '2'] as const]) {
      const old = (await pods('gateway')).map(({ metadata }) => metadata.uid)
      const streams = listenLong(gateway, keys.coding, 8)
      await until(async () => model.open() === 8)
      const from = performance.now()
      writeValues(tag)
      await sh((commandsOf('docs/chart-upgrades.md', 'Stop and upgrade')[0] ?? '').replace('charts/tollgate', chart))
      took(`helm upgrade and kubectl rollout status to image ${tag}`, from)
      const images = ['gateway', 'worker', 'dispatcher', 'controller'].map(async (role) => (await pods(role)).filter(({ metadata }) => !metadata.deletionTimestamp).map(({ spec }) => spec.containers[0].image))
      t.same((await Promise.all(images)).flat(), Array.from({ length: 7 }, () => `${IMAGE}:${tag}`))
      t.equal(model.open(), 8, 'streams go on')
      t.ok((await pods('gateway')).some(({ metadata }) => old.includes(metadata.uid)), 'in a gateway that only waits for them')
      model.finish()
      t.same((await streams).map((one) => (one.status === 'rejected' ? String(one.reason) : 'whole')), Array.from({ length: 8 }, () => 'whole'))
      await until(async () => !(await pods('gateway')).some(({ metadata }) => old.includes(metadata.uid)))
      const { ordered } = load.sofar
      await until(async () => load.sofar.ordered > ordered + 2)
    }
    const { done, failed, ordered } = await load.stop()
    t.comment(`${done} calls`)
    t.same(failed, [])
    t.equal(((await burned()) - before).toFixed(4), (ordered * 0.04).toFixed(4))
    const [, verify = ''] = commandsOf('docs/chart-upgrades.md', 'Stop and upgrade')
    t.match(await sh(verify), { stdout: /events checked: 0 violations/ })
  })

  await step('with dashboard.keyManagement a key issued in the dashboard is an ApiKey that works at the gateway, and a sign-out ends the session at every gateway', async (t) => {
    t.match(await browser.get(gateway.url, '/dashboard/api/session'), { status: 200, body: { key_management: { allowed: true } } }, 'a session outlives an upgrade')
    t.match(await browser.send(gateway.url, '/dashboard/api/keys', { name: 'laptop', plan: 'coder' }), { status: 201, body: { name: 'laptop' } })
    await asTenant('wait', 'apikey/laptop', '--for=condition=Ready', '--timeout=60s')
    t.match(await asTenant('get', 'apikeys'), /^laptop +coder +Active/m)
    const { body } = await browser.send(gateway.url, '/dashboard/api/keys/laptop/reveal', {})
    t.equal((await chat(gateway, String(at(body, 'key')))).status, 200)
    t.match(await browser.send(gateway.url, '/dashboard/api/sign-out', {}), { status: 200, body: { end_session_url: /^https:/ } })
    for (const url of await gateways()) t.equal((await browser.get(url, '/dashboard/api/session')).status, 401)
  })

  await step('the commands of docs/chart-upgrades.md restore a backup of the database: verify finds nothing, keys work, and what was made since is gone', async (t) => {
    const [data, backup] = [join(mongodb.folder, 'postgres'), join(mongodb.folder, 'backup')]
    const copy = (from: string, to: string) => command('cp', ['-a', from, to])
    await mongodb.kill()
    await copy(data, backup)
    await mongodb.start()
    const order = async () => answer(await post(gateway, keys.media, '/api/v1/generations', { kind: 'image', prompt: 'a lighthouse', size: '128x128' }))
    const statusOf = async (id: unknown) => (await get(gateway, keys.media, `/api/v1/generations/${String(id)}`)).status
    await until(async () => (await order()).status === 202)
    const lost = at((await order()).body, 'id')
    t.equal(await statusOf(lost), 200)

    const [restore = ''] = commandsOf('docs/chart-upgrades.md', 'Backup and restore')
    const [before = '', controllers = '', verify = ''] = restore.split(/^(?=# (?:restore MongoDB|scale each))/m)
    const numbers = await deployments()
    const from = performance.now()
    await sh(before)
    t.same(Object.values(await deployments()), [0, 0, 0, 0])
    await mongodb.kill()
    await command('rm', ['-rf', data])
    await copy(backup, data)
    await mongodb.start()
    t.match(await sh(controllers), { stdout: /Events .* come after all/ })
    for (const [name, replicas] of Object.entries(numbers)) await kubectl(['scale', 'deployment', name, '--namespace', GATE, `--replicas=${replicas}`])
    for (const name of Object.keys(numbers)) await kubectl(['rollout', 'status', 'deployment', name, '--namespace', GATE, '--timeout', LONGEST])
    took('the stop of all pods, the restore and their start', from)
    // The Service has its endpoints a moment after its pods are ready.
    await until(() => chat(gateway, keys.coding).then(({ status }) => status === 200, () => false))
    await until(async () => (await statusOf(lost)) === 404)
    await until(async () => (await order()).status === 202)
    t.match(await sh(verify), { stdout: /events checked: 0 violations/ })
  })

  await step('helm uninstall leaves the CRDs, Plans and ApiKeys with their keys, and the Secrets of the installation', async (t) => {
    const declared = async () => (await read('plans,apikeys', '--namespace', TENANT)).items.map(({ kind, metadata }: Answered) => `${kind} ${metadata.uid}`)
    const before = await declared()
    t.equal(before.length, 5)
    await helmed('uninstall', 'tollgate', '--namespace', GATE, '--wait', '--timeout', LONGEST)
    const kinds = (await kubectl(['api-resources', '--verbs=list', '--output=name'])).trim().split('\n').join(',')
    const ours = async () => (await kubectl(['get', kinds, '--all-namespaces', '--selector=app.kubernetes.io/instance=tollgate', '--output=name'])).trim()
    await until(async () => (await ours()) === '')
    t.match(await kubectl(['get', 'crds', '--output=name']), /apikeys\.tollgate\.dev\n.*plans\.tollgate\.dev/)
    t.same(await declared(), before)
    t.same([await keyOf('coding-key'), await keyOf('media-key')], [keys.coding, keys.media])
    const left = (await read('secrets,configmaps,leases', '--namespace', GATE)).items.map(({ kind, metadata }: Answered) => `${kind}/${metadata.name}`)
    t.same(left.sort(), ['ConfigMap/authorities', 'ConfigMap/engines', 'ConfigMap/kube-root-ca.crt', 'Secret/api-tls', 'Secret/dashboard-client', 'Secret/tollgate-broker', 'Secret/tollgate-sealing', 'Secret/tollgate-store', 'Secret/upstream-keys'])
  })
})
